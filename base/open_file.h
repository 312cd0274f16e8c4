// SPDX-License-Identifier: Apache-2.0

// Calls to the system that are repeated after interrupts, which network file systems report. Thread-safe.
#pragma once

#include <cerrno>
#include <string>

#include "base/fd.h"

namespace ringmaster {

// Returns what `call` returns, a value below 0 with errno if it fails, and calls it again after EINTR.
template <class Call>
auto WithoutInterrupts(const Call& call) {
  auto outcome = call();
  while (outcome < 0 && errno == EINTR) outcome = call();
  return outcome;
}

// As open(2) with O_CLOEXEC.
Fd OpenFile(const std::string& path, int flags, unsigned mode = 0);

}  // namespace ringmaster
