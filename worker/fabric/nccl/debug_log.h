// SPDX-License-Identifier: Apache-2.0

// NCCL's log, read by this process: it is turned on at level INFO and written to memory, so that net.h can
// parse it. The messages that the user asked for still appear, in this process's log.
//
// Not thread-safe. REQUIRES: opened before NCCL's first call and before other threads read the environment,
// from which NCCL takes its settings.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::fabric::nccl {

class DebugLog {
 public:
  // If the user has set NCCL_DEBUG_FILE, NCCL writes to that file, and Read reads it.
  static Result<DebugLog> Open();

  // Returns the complete lines written since the last call.
  std::vector<std::string> Read();

  // Which lines to log: by the NCCL_DEBUG that the user has set.
  enum class Show { kWarnings, kAll };
  Show show() const { return show_; }

 private:
  Fd file_;           // own memory file, or the user's file once it exists
  std::string path_;  // of the user's file; empty: file_ is memory
  off_t read_ = 0;
  std::string partial_line_;  // the end of what was read, without its newline
  Show show_ = Show::kWarnings;
};

}  // namespace ringmaster::fabric::nccl
