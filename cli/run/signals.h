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
  // SIGHUP because the terminal was closed, not because a user sent it.
  static constexpr int kTerminalClosed = -1;

  // Returns the next pending signal, kTerminalClosed, or nullopt. Never blocks.
  std::optional<int> Next();

 private:
  Fd fd_;
  bool had_terminal_ = false;  // standard input, output or error was one
};

}  // namespace ringmaster::cli
