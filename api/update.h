// SPDX-License-Identifier: Apache-2.0

// What may change in a job that exists. The field tables say it (Rules::change); a field that says nothing
// may change only while the job is stopped: suspended, and reported by the operator as without a worker.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "api/load.h"
#include "api/schema.h"

namespace ringmaster::api {

inline constexpr const char* kNeverChanges =
    "cannot be changed: create a job of another name, or delete this one first";
inline constexpr const char* kChangesWhenStopped =
    "can be changed only while the job is stopped: set spec.suspend, and wait for condition Suspended";

// A field, or an object whose fields are all alike, that may not change at any time.
struct GuardedField {
  std::string path;  // spec.training.batch
  const Schema* schema;
  std::vector<std::string> optional_parents;  // spec.training
  bool never = false;                         // else: while the job is stopped
};
const std::vector<GuardedField>& GuardedFields();

// Everything that is wrong with replacing `old`, which is a valid job, by `changed`: what Validate finds, and
// changes that are not allowed. What stands in old.status counts.
std::vector<Problem> ValidateUpdate(const TrainingJob& old, const TrainingJob& changed);

}  // namespace ringmaster::api
