// The head of an emulated stream, as a library sees it that puts work of its own on streams
// (tests/cuda/nccl): it counts what it has put there, and what of that is done, in order. Whoever waits for
// the stream waits for that too.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringmaster::cuda::emulation {

struct StreamHead {
  std::atomic<uint64_t> given{0};
  std::atomic<uint64_t> done{0};

  bool Reached(uint64_t position) const { return done.load() >= position; }
  void WaitFor(uint64_t position) const {
    for (uint64_t now = done.load(); now < position; now = done.load()) done.wait(now);
  }
};

}  // namespace ringmaster::cuda::emulation
