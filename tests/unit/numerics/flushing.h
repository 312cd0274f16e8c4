// SPDX-License-Identifier: Apache-2.0

// Runs code on a thread that flushes subnormals, as all threads of a trainer do.
#pragma once

#include <functional>

#include "base/subnormals.h"

namespace ringmaster::numerics {

inline void WhileFlushing(const std::function<void()>& work) {
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  FlushSubnormals();
  work();
  _mm_setcsr(before);
#else
  work();
#endif
}

}  // namespace ringmaster::numerics
