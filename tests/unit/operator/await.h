// SPDX-License-Identifier: Apache-2.0

// Waiting for a condition with a limit.
#pragma once

#include <poll.h>

#include <functional>

#include "base/time.h"

namespace ringmaster::local {

inline bool Await(const std::function<bool()>& condition) {
  const Time limit = Now() + seconds(60);
  while (!condition()) {
    if (Now() >= limit) return false;
    ::poll(nullptr, 0, 1);  // poll: files and other processes send no notification
  }
  return true;
}

}  // namespace ringmaster::local
