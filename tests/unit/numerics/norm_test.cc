// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

TEST(Norm, EqualsTheReferenceBitForBit) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SplitMix64 random(seed);
    const size_t count = random.Chance(0.5) ? random.Below(5000) : random.Below(6) * kBlock;
    const auto values = random.Chance(0.3) ? Awkward(random, count, false) : Ordinary(random, count, -3);
    ASSERT_EQ(std::bit_cast<uint64_t>(Norm(values)), std::bit_cast<uint64_t>(NormReference(values)))
        << "seed " << seed;
  }
}

TEST(Norm, KnownValues) {
  EXPECT_EQ(Norm({}), 0);
  EXPECT_EQ(Norm(std::vector<float>{3, 4}), 5);
  EXPECT_EQ(Norm(std::vector<float>(4 * kBlock, 0.5F)), 32);
  EXPECT_TRUE(std::isfinite(Norm(std::vector<float>(kBlock, std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(Norm(std::vector<float>{1, NAN})));
}

TEST(Norm, DoesNotDependOnAlignment) {
  SplitMix64 random(3);
  const auto values = Ordinary(random, 3 * kBlock, 0);
  std::vector<float> shifted(values.size() + 16);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::copy(values.begin(), values.end(), shifted.begin() + static_cast<int64_t>(shift));
    ASSERT_EQ(Norm(std::span(shifted).subspan(shift, values.size())), Norm(values));
  }
}

TEST(OrderedSum, AddsInIndexOrder) {
  EXPECT_EQ(OrderedSum(std::vector<double>{1e16, 1, -1e16}), 0);  // in any other order it would be 1
  EXPECT_EQ(OrderedSum({}), 0);
}

}  // namespace
}  // namespace ringmaster::numerics
