// SPDX-License-Identifier: Apache-2.0

// Memory and repetitions of kernel tests that run by emulation.
#pragma once

#include <gtest/gtest.h>

#include "base/sanitizers.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/runner.h"

namespace ringmaster::cuda::kernels {

using emulation::Guarded;

// Calls check(run(), what) in several orders of threads. Returns the first result. With the address
// sanitizer, which looks for accesses, two orders are enough.
template <class Run, class Check>
auto InSeveralOrders(const Run& run, const Check& check) {
  const auto under = [&](emulation::Order order, uint64_t seed) {
    const emulation::Schedule schedule(order, seed);
    return run();
  };
  auto first = under(emulation::Order::kForward, 0);
  check(first, under(emulation::Order::kReverse, 0), "threads in reverse order");
#if !defined(RINGMASTER_ADDRESS_SANITIZER)
  for (const uint64_t seed : {1, 2})
    check(first, under(emulation::Order::kRandom, seed),
          "threads in random order, seed " + std::to_string(seed));
#endif
  return first;
}

}  // namespace ringmaster::cuda::kernels
