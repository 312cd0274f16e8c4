// SPDX-License-Identifier: Apache-2.0

// Memory that processes of one machine meet in, to stand in for NCCL: each rank has a place to put a piece of
// data, and all see how far everybody is. It is a nameless file that goes with the last process; an area is
// known by its path under /proc, as long as the process that made it lives.
//
// Any thread, any process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::nccl_emulation {

class Area {
 public:
  static constexpr int kRanks = 16;
  static constexpr size_t kPiece = 64 << 10;

  struct Rank {
    alignas(64) std::atomic<uint64_t> put;    // pieces that lie, or lay, in its place
    alignas(64) std::atomic<uint64_t> taken;  // pieces of all ranks that it needs no more
  };
  struct Head {
    std::atomic<uint32_t> changes;  // of `put` and `taken`; what waiters sleep on
    std::atomic<int32_t> joined;
    std::atomic<bool> has_successor;
    std::array<char, 64> successor;  // the path of the area of those who are left, or of a larger one
    int32_t invited_by;              // of a larger one's ranks who asked for its id...
    int32_t old_world;               // ...and how many there were; 0: this one is none
    std::array<Rank, kRanks> ranks;
  };

  static Result<std::shared_ptr<Area>> Create();
  static Result<std::shared_ptr<Area>> Open(const std::string& path);
  explicit Area(Fd file, std::byte* memory);
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  std::string path() const;
  Head& head() { return *reinterpret_cast<Head*>(memory_); }
  std::span<std::byte> Place(int rank) {
    return {memory_ + kHead + static_cast<size_t>(rank) * kPiece, kPiece};
  }

  // Wakes whoever waits, in all processes: something may be as it wanted.
  void TellChange();
  // Blocks until there was a change after `seen` was read from the head's `changes`; it may return earlier.
  void AwaitChange(uint32_t seen);

 private:
  static constexpr size_t kHead = 4096;
  static_assert(sizeof(Head) <= kHead);
  static constexpr size_t kBytes = kHead + kRanks * kPiece;

  const Fd file_;
  std::byte* const memory_;
};

}  // namespace ringmaster::nccl_emulation
