// SPDX-License-Identifier: Apache-2.0

// NCCL's log, read by this process: it is turned on at level INFO and written to memory, so that net.h can
// learn from it. What the user asked to see of it is still shown, in our own log.
//
// Open before NCCL's first call, and before there are threads that read the environment: NCCL takes its
// settings from there. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::fabric::nccl {

class DebugLog {
 public:
  // A user who has set NCCL_DEBUG_FILE keeps his file: it is read from there.
  static Result<DebugLog> Open();

  // The whole lines that came since the last time.
  std::vector<std::string> Read();

  // How much of it is shown: by NCCL_DEBUG as it was found.
  enum class Show { kWarnings, kAll };
  Show show() const { return show_; }

 private:
  Fd file_;           // ours; or the user's, as soon as it is there
  std::string path_;  // the user's; empty: file_ is memory
  off_t read_ = 0;
  std::string rest_;  // of a line that has not ended
  Show show_ = Show::kWarnings;
};

}  // namespace ringmaster::fabric::nccl
