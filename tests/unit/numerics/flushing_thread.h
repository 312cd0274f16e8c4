// SPDX-License-Identifier: Apache-2.0

// A thread that flushes subnormals, as all threads of a trainer do.
#pragma once

#include <functional>
#include <thread>

#include "base/subnormals.h"

namespace ringmaster::numerics {

inline void OnAFlushingThread(const std::function<void()>& work) {
  std::thread([&work] {
    FlushSubnormals();
    work();
  }).join();
}

}  // namespace ringmaster::numerics
