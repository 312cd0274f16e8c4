// SPDX-License-Identifier: Apache-2.0

// Shared memory through which processes of one machine emulate NCCL: each rank has a slot for a piece of
// data, and all ranks see the progress of all. It is an anonymous file, which ends with the last process;
// other processes open it by its path under /proc while its creator lives.
//
// Thread-safe, and safe between processes.
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
    alignas(64) std::atomic<uint64_t> put;    // pieces it has put into its slot so far
    alignas(64) std::atomic<uint64_t> taken;  // pieces of all ranks that it has read
  };
  struct Head {
    std::atomic<uint32_t> changes;  // counts changes of `put` and `taken`; waiters sleep on it
    std::atomic<int32_t> joined;
    std::atomic<bool> has_successor;
    std::array<char, 64> successor;  // path of the area of the smaller or larger communicator
    int32_t invited_by;              // of a larger one: the rank that requested its id...
    int32_t old_world;               // ...and the number of old members; 0: not grown
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
  std::span<std::byte> Slot(int rank) {
    return {memory_ + kHead + static_cast<size_t>(rank) * kPiece, kPiece};
  }

  // Wakes the waiters in all processes after a change.
  void NotifyChange();
  // Waits for a change after the caller read `seen` from the head's `changes`; may return early.
  void AwaitChange(uint32_t seen);

 private:
  static constexpr size_t kHead = 4096;
  static_assert(sizeof(Head) <= kHead);
  static constexpr size_t kBytes = kHead + kRanks * kPiece;

  const Fd file_;
  std::byte* const memory_;
};

}  // namespace ringmaster::nccl_emulation
