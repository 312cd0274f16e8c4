// SPDX-License-Identifier: Apache-2.0

// The control page: everything a member publishes to its same-host peers. Only the owner writes it; peers map
// it read-only.
//
// Invariant: a peer never mistakes garbage for data. Published data stays unchanged until all peers report
// that they have read it, or until the owner gives up the generation. The owner sets `stopped` before it
// changes a byte, and readers check `stopped` after each read.
//
// Plain data; both sides compare kLayout, since they must run the same build.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/fabric/operation.h"

namespace ringmaster::fabric::shm {

inline constexpr size_t kMaxRanks = 256;          // on one host
inline constexpr size_t kSmallBytes = 4096;       // data up to this size is sent inside the control page
inline constexpr size_t kPieceBytes = 256 << 10;  // of data in the staging segment
inline constexpr size_t kPieceSlots = 4;          // for collectives, and as many for sends
inline constexpr size_t kCollectiveStaging = 0;   // offsets in the staging segment
inline constexpr size_t kSendStaging = kPieceSlots * kPieceBytes;
inline constexpr size_t kStagingBytes = 2 * kPieceSlots * kPieceBytes;

// Indices in MemberAddress::segments.
inline constexpr size_t kControlSegment = 0;
inline constexpr size_t kStagingSegment = 1;

// Where the owner's data of one operation is.
struct Descriptor {
  uint64_t segment = 0;  // index in MemberAddress::segments
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t staged = 0;  // 1: the data is not in a segment; it comes in pieces through the staging area
};

// A small message, inline. The operation is in the cache line that peers poll, so that up to 64 bytes take
// one more line.
struct alignas(64) SmallSlot {
  std::byte data[kSmallBytes];
};

// One direction of a pairwise transfer; indexed by the rank of the other side.
struct alignas(64) Cell {
  std::atomic<uint64_t> count;  // pieces offered, or pieces taken
  Descriptor descriptor;        // of the current transfer (sender only)
};

struct ControlPage {
  static constexpr uint64_t kMagic = 0x52494e4746414231;  // "RINGFAB1"
  static constexpr uint64_t kLayout = 6;

  uint64_t magic;
  uint64_t layout;
  int64_t pid;
  char uuid[32];

  // The cache line that peers poll. `phase` counts steps of the current generation; its low half is the futex
  // word.
  alignas(64) std::atomic<uint64_t> phase;
  std::atomic<uint64_t> stopped;  // generations up to this one are over for the owner
  std::atomic<uint64_t> ready;    // the generation that `phase`, cells and descriptors belong to
  std::atomic<uint32_t> closed;   // the Fabric was destroyed
  Operation operations[2];        // the last two collectives, to detect mismatched calls

  alignas(64) std::atomic<uint32_t> sleepers;  // 1: the owner sleeps in a futex on some peer's word
  std::atomic<uint64_t> waits;                 // odd while the owner waits for a peer; grows with each wait
  std::atomic<uint64_t> looks;  // grows while the owner waits and runs: a stopped owner does not wait

  alignas(64) Descriptor descriptors[2];  // of the same collectives
  SmallSlot small[2];
  Cell offers[kMaxRanks];
  Cell takes[kMaxRanks];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Cell) == 64);
static_assert(offsetof(ControlPage, sleepers) == offsetof(ControlPage, phase) + 64);

}  // namespace ringmaster::fabric::shm
