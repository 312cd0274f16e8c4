// SPDX-License-Identifier: Apache-2.0

// The head of an emulated stream, as a library sees it that puts work of its own on streams
// (tests/cuda/nccl): it counts what it has put there, and what of that is done, in order. Whoever waits for
// the stream waits for that too.
//
// Not std::atomic's wait: each library that is loaded on its own has its own table of who waits, so the one
// that would wake us finds nobody.
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
