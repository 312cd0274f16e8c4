// SPDX-License-Identifier: Apache-2.0

// Signals as something to wait for, instead of handlers. Create it before any thread: threads inherit the
// mask.
#pragma once

#include <optional>

#include "base/fd.h"

namespace ringmaster::cli {

class Signals {
 public:
  // Blocks SIGINT, SIGTERM and SIGHUP in this thread.
  Signals();
  int fd() const { return fd_.get(); }
  // The next one that came; never blocks.
  std::optional<int> Next();

 private:
  Fd fd_;
};

}  // namespace ringmaster::cli
