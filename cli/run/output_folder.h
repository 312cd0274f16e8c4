// SPDX-License-Identifier: Apache-2.0

// The output folder of a run (DIR): creates it, checks that it is writable, locks it against a second run,
// and cleans it for --fresh.
//
// The lock is a flock on DIR/.lock, so the kernel releases it however the process ends. Main thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::cli {

// In the output folder: the path of the checkpoints when they are elsewhere. cli/weights reads it.
inline constexpr const char* kCheckpointPathFile = "checkpoint_path";

struct OutputPaths {
  std::string folder;
  std::string checkpoints;
  std::string logs;
  std::string metrics;
  std::string events;
  std::string busy_times;
  std::string summary;
  std::string tensorboard;
  std::string digests;
};

OutputPaths PathsIn(const std::string& folder, const std::string& checkpoint_path);

class OutputFolder {
 public:
  // Creates the folder and takes the lock. Errors name path, reason and remedy: not a folder, not writable,
  // in use by another run (with its pid), or less than `needed_bytes` free, of which existing checkpoints
  // already have their part. On an error, the folders that it created are removed again. With
  // `owns_checkpoints`, it locks the folder of checkpoints, too: another run may have been given the same.
  static Result<OutputFolder> Open(const OutputPaths& paths, int64_t needed_bytes,
                                   bool owns_checkpoints = true);

  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) noexcept = default;
  // Removes the folders that Open created, unless Keep was called or they contain a file.
  ~OutputFolder();

  const OutputPaths& paths() const { return paths_; }

  // Removes checkpoints, metrics, events, busy times, logs, event files, digests and summary, for --fresh; no
  // other file. In a folder of checkpoints outside of DIR only those of the job `run` ("namespace/name").
  // Errors: the first file that cannot be removed, after all others are.
  Status Clean(const std::string& run) const;

  // Keeps the folder: the run has started.
  void Keep() { created_.clear(); }

 private:
  OutputFolder(OutputPaths paths, Fd lock, std::string created);

  OutputPaths paths_;
  Fd lock_;
  Fd checkpoints_lock_;
  std::string created_;  // topmost folder that Open created; empty when all existed
};

}  // namespace ringmaster::cli
