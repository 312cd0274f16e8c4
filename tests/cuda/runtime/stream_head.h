// SPDX-License-Identifier: Apache-2.0

// The part of an emulated stream that an external library uses to enqueue work (tests/cuda/nccl): counters
// of the work that it has enqueued and of the work that is done, in order. A wait for the stream waits for
// that work, too.
//
// Does not use std::atomic::wait: every separately loaded library has its own table of waiters, so a
// notification from one library does not wake a waiter in another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ringmaster::cuda::emulation {

class StreamHead {
 public:
  void Give() {
    const std::lock_guard lock(mutex_);
    ++given_;
  }
  void Finish() {
    const std::lock_guard lock(mutex_);
    ++done_;
    changed_.notify_all();
  }

  uint64_t given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool Reached(uint64_t position) const {
    const std::lock_guard lock(mutex_);
    return done_ >= position;
  }
  void WaitFor(uint64_t position) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= position; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t given_ = 0;
  uint64_t done_ = 0;
};

}  // namespace ringmaster::cuda::emulation
