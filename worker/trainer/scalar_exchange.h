// SPDX-License-Identifier: Apache-2.0

// ScalarExchange combines everything that is not a gradient in one small all-reduce (max): maxima of blocks,
// votes, and numbers that exactly one rank knows (the loss of a micro-batch). The maximum of a known and an
// unknown value is the known value, so the reduction gathers: every rank gets all numbers and can sum them in
// a fixed order. The result does not depend on which rank contributed what.
//
// It also shows whether all members that have the training state put the same digest of it.
//
// Layout: [votes | digest | maxima | words]. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

class ScalarExchange {
 public:
  enum Vote : int { kStopAtBoundary = 0, kJoinPieces = 1, kFinishes = 2, kGoesOn = 3, kVotes = 16 };

  // A digest takes four words: its halves and their complements, since the maximum of the complements is the
  // complement of the minimum.
  static constexpr int kDigest = 4;
  static constexpr int64_t kHead = kVotes + kDigest;  // words before the maxima

  static int64_t Words(int64_t maxima, int64_t numbers) { return kHead + maxima + 2 * numbers; }

  // REQUIRES: `memory` holds at least Words(maxima, numbers) words and outlives the exchange.
  ScalarExchange(std::span<int32_t> memory, int64_t maxima, int64_t numbers)
      : all_(memory.first(static_cast<size_t>(Words(maxima, numbers)))),
        digest_(all_.subspan(kVotes, kDigest)),
        maxima_(all_.subspan(kHead, static_cast<size_t>(maxima))),
        words_(all_.subspan(kHead + static_cast<size_t>(maxima))) {}

  void Clear(int32_t smallest_maximum) {
    for (int32_t& vote : all_.first(kVotes)) vote = 0;
    for (int32_t& word : digest_) word = INT32_MIN;
    for (int32_t& maximum : maxima_) maximum = smallest_maximum;
    for (int32_t& word : words_) word = INT32_MIN;
  }

  void Cast(Vote vote) { all_[static_cast<size_t>(vote)] = 1; }
  // A vote with a number: the largest one wins.
  void Cast(Vote vote, int32_t number) { all_[static_cast<size_t>(vote)] = number; }
  int32_t Number(Vote vote) const { return all_[static_cast<size_t>(vote)]; }
  bool Voted(Vote vote) const { return all_[static_cast<size_t>(vote)] != 0; }
  std::span<int32_t> maxima() { return maxima_; }

  void Put(int64_t index, uint64_t bits) {
    words_[static_cast<size_t>(2 * index)] = static_cast<int32_t>(bits & 0xffffffff);
    words_[static_cast<size_t>(2 * index + 1)] = static_cast<int32_t>(bits >> 32);
  }
  void PutDouble(int64_t index, double value) { Put(index, std::bit_cast<uint64_t>(value)); }
  uint64_t Get(int64_t index) const {
    const auto low = static_cast<uint32_t>(words_[static_cast<size_t>(2 * index)]);
    const auto high = static_cast<uint32_t>(words_[static_cast<size_t>(2 * index + 1)]);
    return static_cast<uint64_t>(high) << 32 | low;
  }
  double GetDouble(int64_t index) const { return std::bit_cast<double>(Get(index)); }

  // Of this member's state. A member that has none puts nothing.
  void PutDigest(uint64_t digest) {
    for (size_t half = 0; half < 2; ++half) {
      const auto bits = static_cast<int32_t>(digest >> 32 * half & 0xffffffff);
      digest_[2 * half] = bits;
      digest_[2 * half + 1] = ~bits;
    }
  }
  // After Exchange: whether all digests that were put are equal.
  bool DigestsAgree() const {
    if (digest_[0] == INT32_MIN && digest_[1] == INT32_MIN) return true;  // none was put
    return digest_[0] == ~digest_[1] && digest_[2] == ~digest_[3];
  }

  Status Exchange(fabric::Communicator* comm) { return comm->AllReduce(all_, fabric::ReduceOp::kMax); }

 private:
  std::span<int32_t> all_;
  std::span<int32_t> digest_;
  std::span<int32_t> maxima_;
  std::span<int32_t> words_;
};

}  // namespace ringmaster::trainer
