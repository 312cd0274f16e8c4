// SPDX-License-Identifier: Apache-2.0

// WorkCounter is how much of a long operation is done, in units of the operation, such as bytes or files. The
// operation writes it, and another thread shows it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringmaster {

struct WorkCounter {
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> total{0};  // 0: not known yet

  // Begins again: an operation may consist of parts, or try something else after an error.
  void Begin(int64_t units) {
    done.store(0, std::memory_order_relaxed);
    total.store(units, std::memory_order_relaxed);
  }
  void Add(int64_t units) { done.fetch_add(units, std::memory_order_relaxed); }
  // Returns what is done in percent; -1: the total is not known.
  int Percent() const {
    const int64_t all = total.load(std::memory_order_relaxed);
    const int64_t now = done.load(std::memory_order_relaxed);
    return all <= 0 ? -1
                    : static_cast<int>(100.0 * static_cast<double>(now < all ? now : all) /
                                       static_cast<double>(all));
  }
};

}  // namespace ringmaster
