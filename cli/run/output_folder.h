// SPDX-License-Identifier: Apache-2.0

// DIR of a run: made, proved writable, locked against a second run, and cleaned when --fresh says so.
//
// The lock is a flock on DIR/.lock, so it goes with the process however that ends. Main thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::cli {

struct OutputPaths {
  std::string folder;
  std::string checkpoints;
  std::string logs;
  std::string metrics;
  std::string events;
  std::string summary;
};

OutputPaths PathsIn(const std::string& folder, const std::string& checkpoint_path);

class OutputFolder {
 public:
  // Makes the folder and takes the lock. Refuses with path, reason and remedy: not a folder, not writable, in
  // use by another run (with its pid), or less than `needed_bytes` free. Folders made here are taken away
  // again when it refuses.
  static Result<OutputFolder> Open(const OutputPaths& paths, int64_t needed_bytes);

  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) noexcept = default;
  // Takes away what Open made, when nothing was kept in it (see Keep).
  ~OutputFolder();

  const OutputPaths& paths() const { return paths_; }

  // --fresh: removes checkpoints (only folders that look like ours), metrics, events, logs and summary.
  Status Clean() const;

  // The run really starts: the folder stays.
  void Keep() { made_.clear(); }

 private:
  OutputFolder(OutputPaths paths, Fd lock, std::string made);

  OutputPaths paths_;
  Fd lock_;
  std::string made_;  // topmost folder that Open made; empty when it was there
};

}  // namespace ringmaster::cli
