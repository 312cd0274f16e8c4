// SPDX-License-Identifier: Apache-2.0

// Which fields of an existing job may change, from Rules::change of the field tables. Without it, a field may
// change only while the job is stopped: suspended, and without workers according to the operator. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "api/load.h"
#include "api/schema.h"

namespace ringmaster::api {

inline constexpr const char* kNeverChanges =
    "cannot be changed: create a job with another name, or delete this one first";
inline constexpr const char* kChangesWhenStopped =
    "can be changed only while the job is stopped: set spec.suspend and wait for condition Suspended";

// A field that may not change at any time, or an object whose fields all have the same rule.
struct GuardedField {
  std::string path;  // spec.training.batch
  const Schema* schema;
  std::vector<std::string> optional_parents;  // spec.training
  bool never = false;                         // false: may change while the job is stopped
};
const std::vector<GuardedField>& GuardedFields();

// Returns all problems of replacing `old` by `changed`: those that Validate finds, and changes that are not
// allowed given old.status. REQUIRES: `old` is valid.
std::vector<Problem> ValidateUpdate(const TrainingJob& old, const TrainingJob& changed);

}  // namespace ringmaster::api
