// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/scalar_exchange.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace ringmaster::trainer {
namespace {

// Does what an all-reduce (max) does to the memory of several ranks.
void Merge(std::vector<std::vector<int32_t>>* memory) {
  for (size_t i = 0; i < memory->front().size(); ++i) {
    int32_t largest = INT32_MIN;
    for (const auto& words : *memory) largest = std::max(largest, words[i]);
    for (auto& words : *memory) words[i] = largest;
  }
}

TEST(ScalarExchange, EveryRankGetsTheValueThatOneRankKnows) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      1.5,
                                      -2.25e-300,
                                      std::numeric_limits<double>::infinity(),
                                      -1e9,
                                      std::bit_cast<double>(uint64_t{0x8000000080000000}),
                                      std::nan("")};
  const auto numbers = static_cast<int64_t>(values.size());
  std::vector<std::vector<int32_t>> memory(
      3, std::vector<int32_t>(static_cast<size_t>(ScalarExchange::Words(2, numbers))));
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    ScalarExchange exchange(memory[rank], 2, numbers);
    exchange.Clear(-999);
    for (size_t i = rank; i < values.size(); i += memory.size())
      exchange.PutDouble(static_cast<int64_t>(i), values[i]);
    exchange.maxima()[0] = static_cast<int32_t>(rank);
  }
  Merge(&memory);
  for (auto& words : memory) {
    ScalarExchange exchange(words, 2, numbers);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(exchange.Get(static_cast<int64_t>(i)), std::bit_cast<uint64_t>(values[i])) << i;
    }
    EXPECT_EQ(exchange.maxima()[0], 2);
    EXPECT_EQ(exchange.maxima()[1], -999);
  }
}

TEST(ScalarExchange, OneVoteReachesEveryRank) {
  std::vector<std::vector<int32_t>> memory(
      2, std::vector<int32_t>(static_cast<size_t>(ScalarExchange::Words(0, 1))));
  for (auto& words : memory) ScalarExchange(words, 0, 1).Clear(0);
  Merge(&memory);
  EXPECT_FALSE(ScalarExchange(memory[0], 0, 1).Voted(ScalarExchange::kStopAtBoundary));
  ScalarExchange(memory[1], 0, 1).Cast(ScalarExchange::kStopAtBoundary);
  Merge(&memory);
  EXPECT_TRUE(ScalarExchange(memory[0], 0, 1).Voted(ScalarExchange::kStopAtBoundary));
}

TEST(ScalarExchange, DigestsAgreeOnlyIfAllThatWerePutAreEqual) {
  const auto agree = [](const std::vector<std::optional<uint64_t>>& digests) {
    std::vector<std::vector<int32_t>> memory(
        digests.size(), std::vector<int32_t>(static_cast<size_t>(ScalarExchange::Words(1, 1))));
    for (size_t rank = 0; rank < digests.size(); ++rank) {
      ScalarExchange exchange(memory[rank], 1, 1);
      exchange.Clear(0);
      if (digests[rank]) exchange.PutDigest(*digests[rank]);
    }
    Merge(&memory);
    const bool agreed = ScalarExchange(memory[0], 1, 1).DigestsAgree();
    for (auto& words : memory) EXPECT_EQ(ScalarExchange(words, 1, 1).DigestsAgree(), agreed);
    return agreed;
  };
  for (const uint64_t digest : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31, uint64_t{1} << 32, ~uint64_t{0},
                                uint64_t{0x8000000080000000}, uint64_t{0x7fffffff7fffffff}}) {
    EXPECT_TRUE(agree({digest, digest, digest}));
    EXPECT_TRUE(agree({digest, std::nullopt, digest}));
    for (int bit = 0; bit < 64; ++bit) EXPECT_FALSE(agree({digest, digest ^ uint64_t{1} << bit})) << bit;
    EXPECT_FALSE(agree({digest + 1, digest, digest - 1}));
  }
  EXPECT_TRUE(agree({std::nullopt, std::nullopt}));
}

}  // namespace
}  // namespace ringmaster::trainer
