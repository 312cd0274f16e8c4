// SPDX-License-Identifier: Apache-2.0

// The identity of a checkpoint: the run that wrote it, every setting that determines the bits of its state,
// and its parent, if the run began with a checkpoint of another run or with other settings.
//
// A step number and a model do not identify a state: a run with another learning rate has other weights at
// the same step. A run continues from a checkpoint only if both have the same run and the same settings.
// Otherwise the loader names each difference; spec.checkpoint.from accepts them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ringmaster::checkpoint {

struct Identity {
  std::string run = {};    // "namespace/name" of the job; empty: a program without a job
  std::string model = {};  // a hash of the run and the settings: Manifest::model
  // What determines the bits, by name: {"spec.training.seed": 1}. A value that is an object is compared
  // member by member.
  Json settings = Json::object();
  // Values whose change is reported and does not prevent a run from continuing, such as the versions of
  // libraries.
  Json notes = Json::object();
  // The settings with these prefixes describe what the arrays mean: not even `from` accepts a change.
  std::vector<std::string> fixed = {};
  // Returns how the arrays of a checkpoint of this meta differ from the run's, for people; empty: not.
  // Nothing accepts that either. May be null.
  std::function<std::string(const Json& meta)> different_arrays = {};
  std::string from = {};  // spec.checkpoint.from: a checkpoint, or a folder of checkpoints; empty: none
};

// Sets `model` to `prefix`, for people, and a hash of the run and the settings.
Identity MakeIdentity(std::string_view prefix, Identity identity);

// Returns the member "identity" of a checkpoint's meta. `parent` is null if the run has none.
Json DescribeIdentity(const Identity& identity, const Json& parent);

struct Comparison {
  bool known = true;                 // false: the checkpoint has no identity; an older release wrote it
  std::vector<std::string> changed;  // "spec.training.seed is 2 and was 1"
  std::vector<std::string> fixed;    // those of `changed` that nothing accepts
  std::vector<std::string> noted;    // as `changed`, of the notes
};
// Compares the meta of a checkpoint, which is untrusted, with the identity of a run.
Comparison Compare(const Json& meta, const Identity& ours);

// Returns the run that wrote a checkpoint with this meta, for people: "default/gpt-text", or "an unknown
// run".
std::string RunOf(const Json& meta);

// Returns the parent that a checkpoint of this meta names; null: none.
Json ParentOf(const Json& meta);

}  // namespace ringmaster::checkpoint
