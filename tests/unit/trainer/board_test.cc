// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/board.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace ringmaster::trainer {
namespace {

// What an all-reduce by max does to the boards of several ranks.
void Merge(std::vector<std::vector<int32_t>>* boards) {
  for (size_t i = 0; i < boards->front().size(); ++i) {
    int32_t largest = INT32_MIN;
    for (const auto& board : *boards) largest = std::max(largest, board[i]);
    for (auto& board : *boards) board[i] = largest;
  }
}

TEST(Board, EveryRankLearnsWhatExactlyOneKnew) {
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
      3, std::vector<int32_t>(static_cast<size_t>(Board::Words(2, numbers))));
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    Board board(memory[rank], 2, numbers);
    board.Clear(-999);
    for (size_t i = rank; i < values.size(); i += memory.size())
      board.PutDouble(static_cast<int64_t>(i), values[i]);
    board.maxima()[0] = static_cast<int32_t>(rank);
  }
  Merge(&memory);
  for (auto& words : memory) {
    Board board(words, 2, numbers);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(board.Get(static_cast<int64_t>(i)), std::bit_cast<uint64_t>(values[i])) << i;
    }
    EXPECT_EQ(board.maxima()[0], 2);
    EXPECT_EQ(board.maxima()[1], -999);
  }
}

TEST(Board, OneVoteIsEverybodysVote) {
  std::vector<std::vector<int32_t>> memory(2, std::vector<int32_t>(static_cast<size_t>(Board::Words(0, 1))));
  for (auto& words : memory) Board(words, 0, 1).Clear(0);
  Merge(&memory);
  EXPECT_FALSE(Board(memory[0], 0, 1).Voted(Board::kStandStill));
  Board(memory[1], 0, 1).Cast(Board::kStandStill);
  Merge(&memory);
  EXPECT_TRUE(Board(memory[0], 0, 1).Voted(Board::kStandStill));
}

}  // namespace
}  // namespace ringmaster::trainer
