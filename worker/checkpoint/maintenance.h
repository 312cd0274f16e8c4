// SPDX-License-Identifier: Apache-2.0

// Changes a folder of checkpoints for people: removes checkpoints, and copies one to begin another run with.
// Both hold the lock that `ringmaster run` holds in the folder while it runs, and the lock of the folder.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_counter.h"

namespace ringmaster::checkpoint {

// Removes these checkpoints, whole or damaged, and what dead writers have left. Removes only files that
// writers create: a folder with other files stays with them. Unless `force` is true, the newest checkpoint of
// each run (Manifest::model) that verifies stays: a run on a cluster refuses to continue from an older one.
// Errors, before anything is removed: kNotFound for a step that the folder does not have; kConflict for a
// link, for the newest whole checkpoint of a run, while a run uses the folder, and if the checkpoints change
// meanwhile; kUnavailable for one that may be whole but cannot be read. Later: the first file that cannot be
// removed, after all others are.
Status RemoveSteps(const std::string& folder, const std::vector<int64_t>& steps, bool force,
                   WorkCounter* counter = nullptr);

// Copies the checkpoint of a step into the folder `to`, which is created, and records in its identity that
// the original is its parent. Reads, verifies and writes one file at a time; publishes the copy last. A run
// begins with it if spec.checkpoint.from names `to`. Returns the path of the copy. Errors: kNotFound for the
// step; kCorrupt with the damaged file; kAlreadyExists if `to` has checkpoints; kConflict while a run uses
// `to`; kInvalid if `to` is in a checkpoint. After an error, `to` has no checkpoint.
Result<std::string> Fork(const std::string& folder, int64_t step, const std::string& to,
                         WorkCounter* counter = nullptr);

}  // namespace ringmaster::checkpoint
