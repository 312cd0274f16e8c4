// SPDX-License-Identifier: Apache-2.0

// Finds the checkpoints that a path of a user names. Reads only. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::cli {

// Errors: those of a disk. A path that does not exist is no folder.
Result<bool> IsFolder(const std::string& path);

// Returns where a run with this output folder has its checkpoints: in a subfolder, or in the folder that it
// names. Another path is returned unchanged.
Result<std::string> CheckpointsOf(const std::string& path);

struct CheckpointPlace {
  std::string folder;              // of checkpoints
  std::vector<int64_t> steps;      // those that the user named; empty: none
  std::vector<std::string> locks;  // the files that runs lock in their output folders, as far as known
};

// `path`: the output folder of a run, a folder of checkpoints, or one checkpoint. `steps`: numbers, or names
// of checkpoints. Errors: kNotFound when there is no such folder; kInvalid for what is no step, and for steps
// next to the path of one checkpoint.
Result<CheckpointPlace> FindCheckpoints(const std::string& path, const std::vector<std::string>& steps);

}  // namespace ringmaster::cli
