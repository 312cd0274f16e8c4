// SPDX-License-Identifier: Apache-2.0

// Exponents of values, of a repeated step and of the next step; and whole sequences of steps.
#include <gtest/gtest.h>

#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"
#include "worker/compute/numerics/exponent.h"

namespace ringmaster::numerics {
namespace {

int32_t Of(float value) { return ExponentOfBits(std::bit_cast<uint32_t>(value) & 0x7fffffffU); }

// One parameter per block.
engine::Layout OneBlockEach(size_t blocks) {
  engine::Layout layout;
  for (size_t b = 0; b < blocks; ++b) {
    layout.parameters.push_back({"p", {kBlock}, static_cast<int64_t>(b) * kBlock, kBlock, false});
  }
  layout.elements = static_cast<int64_t>(blocks) * kBlock;
  return layout;
}

TEST(Exponent, IsTheSmallestPowerOfTwoThatFits) {
  EXPECT_EQ(Of(0.0F), kZero);
  EXPECT_EQ(Of(-0.0F), kZero);
  EXPECT_EQ(Of(1.0F), 0);
  EXPECT_EQ(Of(-1.0F), 0);
  EXPECT_EQ(Of(1.0000001F), 1);
  EXPECT_EQ(Of(0.5F), -1);
  EXPECT_EQ(Of(3.0F), 2);
  EXPECT_EQ(Of(std::numeric_limits<float>::max()), 128);
  EXPECT_EQ(Of(std::numeric_limits<float>::min()), -126);
  EXPECT_EQ(Of(0x1p-149F), -149);
  EXPECT_EQ(Of(0x3p-149F), -147);
  EXPECT_EQ(Of(0x1p-127F), -127);
  EXPECT_EQ(Of(std::numeric_limits<float>::infinity()), kNotFinite);
  EXPECT_EQ(Of(-std::numeric_limits<float>::quiet_NaN()), kNotFinite);
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    const auto bits = static_cast<uint32_t>(KeyedRandom(seed) % 0x7f800000U);
    if (bits == 0) continue;
    const double value = std::bit_cast<float>(bits);
    const int32_t e = ExponentOfBits(bits);
    ASSERT_LE(value, std::ldexp(1.0, e)) << bits;
    ASSERT_GT(value, std::ldexp(1.0, e - 1)) << bits;
  }
}

TEST(Exponent, ScalesAreNormalFloatsOverTheWholeRange) {
  for (int32_t e = kMinExponent; e <= kMaxExponent; ++e) {
    for (int bits = 14; bits <= 30; ++bits) {
      const float scale = QuantiseScale(bits, e);
      ASSERT_TRUE(std::isnormal(scale)) << bits << " " << e;
      ASSERT_EQ(double{scale}, std::ldexp(1.0, bits - e));
    }
  }
}

TEST(Exponent, RedoRaisesTheExponentsThatOverflowed) {
  const std::vector<int32_t> maxima{kZero, kNotFinite, 5, 5, -149, 128, kUnknown};
  std::vector<int32_t> redo{3, 4, kUnknown, 7, kUnknown, 0, kUnknown};
  ExponentsForRedo(maxima, redo);
  EXPECT_EQ(redo, (std::vector<int32_t>{3, 4, 5, 7, kMinExponent, 128, kUnknown}));
}

TEST(Exponent, NextAddsTwoBitsAndDecreasesSlowly) {
  const std::vector<int32_t> maxima{kZero, kNotFinite, 5, 5, 5, -149, 128, kUnknown};
  const std::vector<int32_t> old{3, 4, kUnknown, 6, 9, kUnknown, 0, kUnknown};
  const engine::Layout layout = OneBlockEach(maxima.size());
  std::vector<int32_t> next = old;
  ExponentsForNext(layout, maxima, 1, next);
  EXPECT_EQ(next, (std::vector<int32_t>{3, 4, 7, 7, 9, kMinExponent, kMaxExponent, kUnknown}));
  next = old;
  ExponentsForNext(layout, maxima, 3 * kSinkEvery, next);
  EXPECT_EQ(next, (std::vector<int32_t>{3, 4, 7, 7, 8, kMinExponent, kMaxExponent, kUnknown}));
  // The exponent of a block whose values became small decreases over time.
  std::vector<int32_t> one{40};
  for (int64_t step = 1; step <= 40 * kSinkEvery; ++step) {
    ExponentsForNext(OneBlockEach(1), std::vector<int32_t>{5}, step, one);
  }
  EXPECT_EQ(one[0], 7);
}

TEST(Exponent, BlocksOfOneParameterShareItsLargestMaximum) {
  engine::Layout layout;
  layout.parameters = {{"a", {3000}, 0, 3000, false}, {"b", {1}, 3 * kBlock, 1, false}};
  layout.elements = 4 * kBlock;
  std::vector<int32_t> exponents{kUnknown, -3, 20, kUnknown};
  ExponentsForNext(layout, std::vector<int32_t>{kZero, -20, 6, -9}, 1, exponents);
  EXPECT_EQ(exponents, (std::vector<int32_t>{6, 6, 20, -7}));
  // One block that is not finite does not hide the others.
  ExponentsForNext(layout, std::vector<int32_t>{kNotFinite, 9, 6, kZero}, 1, exponents);
  EXPECT_EQ(exponents, (std::vector<int32_t>{9, 11, 20, -7}));
}

// A block of an embedding: small gradients, and a large one every few steps. Only the first large one
// overflows.
TEST(Exponent, RareLargeGradientsAreRemembered) {
  std::vector<int32_t> exponents{kUnknown};
  int redone = 0;
  for (int64_t step = 1; step <= 400; ++step) {
    const std::vector<int32_t> maxima{step % 17 == 0 ? -3 : -14};
    if (Overflowed(maxima, exponents)) {
      ++redone;
      ExponentsForRedo(maxima, exponents);
    }
    ExponentsForNext(OneBlockEach(1), maxima, step, exponents);
  }
  EXPECT_EQ(redone, 2);  // the first step, and the first large one
}

TEST(Exponent, OverflowIgnoresZeroAndNonFiniteBlocks) {
  const std::vector<int32_t> exponents{3, 3};
  EXPECT_FALSE(Overflowed(std::vector<int32_t>{3, kZero}, exponents));
  EXPECT_TRUE(Overflowed(std::vector<int32_t>{3, 4}, exponents));
  // No exponent fits a NaN, so a NaN must not cause endless repetitions.
  EXPECT_FALSE(Overflowed(std::vector<int32_t>{3, kNotFinite}, exponents));
  EXPECT_TRUE(Overflowed(std::vector<int32_t>{4, kNotFinite}, exponents));
  EXPECT_TRUE(NotFinite(std::vector<int32_t>{3, kNotFinite}));
  EXPECT_FALSE(NotFinite(std::vector<int32_t>{3, kZero}));
}

TEST(Exponent, OneRedoIsAlwaysEnough) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SplitMix64 random(seed);
    std::vector<int32_t> exponents(3, kUnknown);
    int redone = 0;
    for (int step = 0; step < 6; ++step) {
      const auto grads = Ordinary(random, 3 * kBlock, static_cast<int>(random.Below(240)) - 120);
      std::vector<int32_t> sums(grads.size());
      std::vector<int32_t> maxima(3, kZero);
      Accumulate(grads, exponents, 24, true, sums, maxima);
      if (Overflowed(maxima, exponents)) {
        ++redone;
        ExponentsForRedo(maxima, exponents);
        Accumulate(grads, exponents, 24, true, sums, maxima);
      }
      ASSERT_FALSE(Overflowed(maxima, exponents)) << "seed " << seed << " step " << step;
      ExponentsForNext(OneBlockEach(3), maxima, step + 1, exponents);
    }
    EXPECT_GE(redone, 1);  // the first step always overflows
  }
}

TEST(Decode, RoundTripsToTheQuantum) {
  SplitMix64 random(7);
  for (const int center : {-120, -40, 0, 40, 120}) {
    const auto grads = Ordinary(random, kBlock, center);
    std::vector<int32_t> exponents{kUnknown};
    std::vector<int32_t> sums(kBlock);
    std::vector<int32_t> maxima{kZero};
    Accumulate(grads, exponents, 30, true, sums, maxima);
    ExponentsForRedo(maxima, exponents);
    Accumulate(grads, exponents, 30, true, sums, maxima);
    std::vector<float> out(kBlock);
    Decode(sums, exponents, 30, 1.0, out);
    const double quantum = std::ldexp(1.0, exponents[0] - 30);
    for (size_t i = 0; i < out.size(); ++i) {
      // Half a quantum from rint, half an ulp from the float.
      ASSERT_LE(std::abs(double{out[i]} - double{grads[i]}),
                0.5 * quantum + std::abs(double{grads[i]}) * 0x1p-24);
    }
  }
}

}  // namespace
}  // namespace ringmaster::numerics
