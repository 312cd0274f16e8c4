// SPDX-License-Identifier: Apache-2.0

// A signalfd for SIGINT, SIGTERM and SIGHUP. REQUIRES: created before any thread, because threads inherit the
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
  // Returns the next pending signal, or nullopt. Never blocks.
  std::optional<int> Next();

 private:
  Fd fd_;
};

}  // namespace ringmaster::cli
