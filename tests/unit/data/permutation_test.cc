// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

void ExpectBijection(uint64_t seed, int64_t epoch, int64_t n) {
  std::vector<bool> taken(static_cast<size_t>(n), false);
  for (int64_t p = 0; p < n; ++p) {
    const int64_t at = Permute(seed, epoch, n, p);
    ASSERT_TRUE(at >= 0 && at < n) << "n " << n << " position " << p;
    ASSERT_FALSE(taken[static_cast<size_t>(at)]) << "n " << n << " position " << p;
    taken[static_cast<size_t>(at)] = true;
  }
}

TEST(Permute, IsABijectionForEverySmallSize) {
  for (int64_t n = 1; n <= 1500; ++n) ExpectBijection(7, n % 5, n);
}

TEST(Permute, IsABijectionForUnusualSizes) {
  for (const int64_t n : {2047L, 2048L, 2049L, 4093L, 4095L, 4096L, 4097L, 5000L, 65521L, 65535L, 65536L,
                          65537L, 99991L, 262143L, 262145L, 1000003L}) {
    ExpectBijection(static_cast<uint64_t>(n) * 31, 3, n);
  }
}

TEST(Permute, StaysInRangeAndDistinctForLargeSizes) {
  for (const int64_t n : {(1L << 31) + 11, (1L << 40) - 1, (1L << 62) - 57, 1L << 62}) {
    std::map<int64_t, int64_t> back;
    SplitMix64 random(static_cast<uint64_t>(n));
    for (int i = 0; i < 5000; ++i) {
      const auto p = static_cast<int64_t>(random.Below(static_cast<uint64_t>(n)));
      const int64_t at = Permute(1, 0, n, p);
      ASSERT_TRUE(at >= 0 && at < n);
      const auto [it, fresh] = back.emplace(at, p);
      ASSERT_TRUE(fresh || it->second == p);
    }
  }
}

// Recorded values: a run must read the same samples after an update of the program.
TEST(Permute, TheOrderNeverChanges) {
  std::vector<int64_t> order;
  for (int64_t p = 0; p < 10; ++p) order.push_back(Permute(1, 0, 10, p));
  EXPECT_EQ(order, (std::vector<int64_t>{2, 9, 7, 5, 1, 8, 3, 6, 4, 0}));
}

TEST(Permute, SeedsAndEpochsDiffer) {
  const int64_t n = 1000;
  const auto equal = [&](uint64_t s1, int64_t e1, uint64_t s2, int64_t e2) {
    int same = 0;
    for (int64_t p = 0; p < n; ++p) same += Permute(s1, e1, n, p) == Permute(s2, e2, n, p);
    return same;
  };
  EXPECT_LT(equal(1, 0, 2, 0), 12);  // expected: 1
  EXPECT_LT(equal(1, 0, 1, 1), 12);
  EXPECT_LT(equal(1, 2, 2, 1), 12);
}

// Over many keys, the image of position p is uniform: chi-square with n - 1 = 36 degrees of freedom exceeds
// 80 with a probability below 1/10000.
TEST(Permute, IsUniform) {
  constexpr int64_t kN = 37;
  constexpr int kKeys = 37 * 400;
  for (const int64_t position : {0L, 1L, 18L, 36L}) {
    std::vector<int> hits(kN, 0);
    for (int key = 0; key < kKeys; ++key) {
      ++hits[static_cast<size_t>(Permute(static_cast<uint64_t>(key), key % 7, kN, position))];
    }
    double chi = 0;
    for (const int h : hits) chi += (h - 400.0) * (h - 400.0) / 400.0;
    EXPECT_LT(chi, 80) << "position " << position;
  }
}

// Neighbouring positions map to distant samples: hardly any consecutive samples are neighbours in the data.
TEST(Permute, BreaksUpRuns) {
  int neighbours = 0;
  for (int64_t p = 1; p < 10000; ++p) {
    const int64_t gap = Permute(3, 0, 10000, p) - Permute(3, 0, 10000, p - 1);
    neighbours += gap == 1 || gap == -1;
  }
  EXPECT_LT(neighbours, 12);  // expected: 2
}

}  // namespace
}  // namespace ringmaster::data
