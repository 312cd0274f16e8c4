// SPDX-License-Identifier: Apache-2.0

// The sums are bit-identical to the reference in every instruction set, and do not depend on which rank owns
// which micro-batch or on the order of additions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"
#include "worker/compute/numerics/exponent.h"
#include "worker/compute/numerics/kernels.h"

namespace ringmaster::numerics {
namespace {

struct Sums {
  std::vector<int32_t> sums;
  std::vector<int32_t> maxima;
  bool operator==(const Sums&) const = default;
};

TEST(QuantumBits, LeavesRoomForTheSum) {
  EXPECT_EQ(QuantumBits(1), 30);
  EXPECT_EQ(QuantumBits(2), 29);
  EXPECT_EQ(QuantumBits(3), 28);
  EXPECT_EQ(QuantumBits(4), 28);
  EXPECT_EQ(QuantumBits(64), 24);
  EXPECT_EQ(QuantumBits(65), 23);
  EXPECT_EQ(QuantumBits(65536), 14);
  for (int v = 1; v <= 65536; v = v < 300 ? v + 1 : v * 2 - v / 3) {
    // V micro-batches with every element at the largest value allowed.
    EXPECT_LE(static_cast<int64_t>(v) << QuantumBits(v), int64_t{1} << 30) << v;
  }
}

TEST(Accumulate, LargestAllowedValuesNeverWrap) {
  for (const int v : {1, 2, 3, 64, 100}) {
    for (const float sign : {1.0F, -1.0F}) {
      const std::vector<float> grads(kBlock, sign * 4.0F);
      const std::vector<int32_t> exponents{2};
      Sums s{std::vector<int32_t>(kBlock), {kZero}};
      for (int i = 0; i < v; ++i) Accumulate(grads, exponents, QuantumBits(v), i == 0, s.sums, s.maxima);
      EXPECT_EQ(s.sums[17], static_cast<int32_t>(sign) * (v << QuantumBits(v)));
      EXPECT_EQ(s.maxima[0], 2);
      EXPECT_FALSE(Overflowed(s.maxima, exponents));
      std::vector<float> out(kBlock);
      Decode(s.sums, exponents, QuantumBits(v), 1.0 / v, out);
      EXPECT_EQ(out[kBlock - 1], sign * 4.0F);
    }
  }
}

TEST(Accumulate, LargestAllowedValuesNeverWrapInTwoLimbs) {
  for (const int v : {1, 2, 3, 64, 100, 1024}) {
    for (const float sign : {1.0F, -1.0F}) {
      std::vector<float> grads(kBlock, sign * 4.0F);
      grads[1] = sign * 0x1.fffffep1F;  // the largest rest that a limb can have, at either end
      grads[2] = sign * 0x1.7fffffp-7F;
      grads[3] = std::ldexp(sign * 0.5F, 2 - QuantumBits(v));
      const std::vector<int32_t> exponents{2};
      Sums s{std::vector<int32_t>(2 * kBlock), {kZero}};
      for (int i = 0; i < v; ++i) Accumulate(grads, exponents, QuantumBits(v), i == 0, s.sums, s.maxima);
      EXPECT_EQ(s.sums[17], static_cast<int32_t>(sign) * (v << QuantumBits(v)));
      EXPECT_EQ(s.sums[kBlock + 17], 0);
      EXPECT_EQ(s.sums[3], 0);  // a tie of limb 0 goes to even, and all of it to limb 1
      EXPECT_EQ(s.sums[kBlock + 3], static_cast<int32_t>(sign) * (v << (QuantumBits(v) - 1)));
      std::vector<float> out(kBlock);
      Decode(s.sums, exponents, QuantumBits(v), 1.0 / v, out);
      for (const size_t i : {0, 1, 3}) EXPECT_EQ(out[i], grads[i]) << v << " " << i;
    }
  }
}

TEST(Accumulate, EqualsTheReferenceOnAwkwardValues) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    const size_t limbs = 1 + seed % 2;
    const size_t blocks = 1 + random.Below(4);
    const int bits = 14 + static_cast<int>(random.Below(15));  // three turns must fit
    std::vector<int32_t> exponents(blocks);
    for (int32_t& e : exponents) {
      e = random.Chance(0.1)
              ? kUnknown
              : kMinExponent + static_cast<int32_t>(random.Below(kMaxExponent - kMinExponent + 1));
      if (random.Chance(0.3)) e = static_cast<int32_t>(random.Below(5)) + 126;
    }
    Sums fast{std::vector<int32_t>(blocks * limbs * kBlock, 12345), std::vector<int32_t>(blocks, 777)};
    Sums slow = fast;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float> grads(blocks * kBlock);
      for (size_t b = 0; b < blocks; ++b) {
        // Scaled so that some blocks fit their exponent and some do not.
        const auto values =
            random.Chance(0.5)
                ? Awkward(random, kBlock, random.Chance(0.2))
                : Ordinary(random, kBlock,
                           std::clamp(exponents[b] - 3 + static_cast<int>(random.Below(3)), -140, 124));
        std::copy(values.begin(), values.end(), grads.begin() + static_cast<int64_t>(b) * kBlock);
      }
      Accumulate(grads, exponents, bits, turn == 0, fast.sums, fast.maxima);
      AccumulateReference(grads, exponents, bits, turn == 0, slow.sums, slow.maxima);
    }
    ASSERT_EQ(fast.maxima, slow.maxima);
    ASSERT_TRUE(fast.sums == slow.sums);
    std::vector<float> decoded(blocks * kBlock), want(blocks * kBlock);
    Decode(fast.sums, exponents, bits, 1.0 / 3, decoded);
    DecodeReference(slow.sums, exponents, bits, 1.0 / 3, want);
    ASSERT_EQ(std::memcmp(decoded.data(), want.data(), want.size() * sizeof(float)), 0);
  }
}

TEST(Kernels, EveryInstructionSetGivesTheSameBits) {
  const Kernels& plain = AvailableKernels().back();
  ASSERT_STREQ(plain.name, "plain");
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SplitMix64 random(seed);
    const std::vector<float> any = Awkward(random, kBlock, true);
    std::vector<float> fits(kBlock);  // |value| <= 2^E
    const int32_t exponent =
        kMinExponent + static_cast<int32_t>(random.Below(kMaxExponent - kMinExponent + 1));
    for (float& value : fits) {
      value = static_cast<float>(std::ldexp(random.Uniform() * 2 - 1, std::min(exponent, 127)));
      if (random.Chance(0.1)) value = std::bit_cast<float>(static_cast<uint32_t>(random.Below(1U << 23)));
    }
    const int bits = 14 + static_cast<int>(random.Below(16));
    const float scale = QuantiseScale(bits, exponent);
    const float limb = LimbScale(bits);
    const double factor = std::ldexp(random.Uniform(), -static_cast<int>(random.Below(120)));
    std::vector<int32_t> want(kBlock);
    std::vector<float> want_floats(kBlock);
    plain.quantise(fits.data(), scale, want.data());
    plain.decode(want.data(), factor, want_floats.data());
    std::vector<int32_t> want_wide(2 * kBlock);
    std::vector<float> want_wide_floats(kBlock);
    plain.quantise_wide(fits.data(), scale, limb, want_wide.data());
    plain.decode_wide(want_wide.data(), factor, limb, want_wide_floats.data());
    for (const Kernels& k : AvailableKernels()) {
      SCOPED_TRACE(testing::Message() << k.name << " seed " << seed);
      EXPECT_EQ(k.max_bits(any.data()), plain.max_bits(any.data()));
      std::vector<int32_t> got(kBlock);
      k.quantise(fits.data(), scale, got.data());
      ASSERT_TRUE(got == want);
      k.quantise_add(fits.data(), scale, got.data());
      std::vector<int32_t> twice(want);
      for (int32_t& q : twice) q *= 2;
      ASSERT_TRUE(got == twice);
      std::vector<int32_t> wide(2 * kBlock);
      std::vector<float> wide_floats(kBlock);
      k.quantise_wide(fits.data(), scale, limb, wide.data());
      ASSERT_TRUE(wide == want_wide);
      k.decode_wide(wide.data(), factor, limb, wide_floats.data());
      ASSERT_EQ(std::memcmp(wide_floats.data(), want_wide_floats.data(), kBlock * sizeof(float)), 0);
      k.quantise_wide_add(fits.data(), scale, limb, wide.data());
      for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i], 2 * want_wide[i]);
      // In place: the floats take the bytes of the integers.
      got = want;
      k.decode(got.data(), factor, reinterpret_cast<float*>(got.data()));
      ASSERT_EQ(std::memcmp(got.data(), want_floats.data(), kBlock * sizeof(float)), 0);
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{17}, int64_t{1000}, kBlock}) {
        EXPECT_EQ(std::bit_cast<uint64_t>(k.sum_squares(fits.data(), count)),
                  std::bit_cast<uint64_t>(plain.sum_squares(fits.data(), count)));
        // Of the fast numerics. What is behind `count` stays.
        std::vector<float> sums(any), want_sums(any), out(kBlock), want_out(kBlock);
        k.add(fits.data(), count, sums.data());
        plain.add(fits.data(), count, want_sums.data());
        k.multiply(any.data(), count, 0.125F, out.data());
        plain.multiply(any.data(), count, 0.125F, want_out.data());
        ASSERT_EQ(std::memcmp(sums.data(), want_sums.data(), kBlock * sizeof(float)), 0);
        ASSERT_EQ(std::memcmp(out.data(), want_out.data(), kBlock * sizeof(float)), 0);
      }
    }
  }
}

// What one rank has after its micro-batches, in the given order.
Sums OfRank(const std::vector<std::vector<float>>& grads, const std::vector<int>& mine,
            const std::vector<int32_t>& exponents, int bits, size_t limbs) {
  Sums s{std::vector<int32_t>(exponents.size() * limbs * kBlock, 0),
         std::vector<int32_t>(exponents.size(), kZero)};
  for (size_t i = 0; i < mine.size(); ++i) {
    Accumulate(grads[static_cast<size_t>(mine[i])], exponents, bits, i == 0, s.sums, s.maxima);
  }
  return s;
}

TEST(Accumulate, AnySplitAndOrderGivesTheSameIntegers) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    const int v_count = 1 + static_cast<int>(random.Below(24));
    const size_t blocks = 1 + random.Below(3);
    const size_t limbs = 1 + seed % 2;
    const int bits = QuantumBits(v_count);
    std::vector<int32_t> exponents(blocks);
    for (int32_t& e : exponents) e = static_cast<int32_t>(random.Below(9));
    std::vector<std::vector<float>> grads;
    for (int v = 0; v < v_count; ++v) {
      grads.push_back(Ordinary(random, blocks * kBlock, static_cast<int>(random.Below(5)) - 2));
      if (random.Chance(0.02)) grads.back()[random.Below(blocks * kBlock)] = NAN;
    }
    std::vector<int> all(static_cast<size_t>(v_count));
    std::iota(all.begin(), all.end(), 0);
    const Sums alone = OfRank(grads, all, exponents, bits, limbs);

    for (int trial = 0; trial < 8; ++trial) {
      for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.Below(i)]);
      const size_t ranks = 1 + random.Below(static_cast<uint64_t>(v_count) + 2);  // some ranks have none
      std::vector<std::vector<int>> owned(ranks);
      for (const int v : all) owned[random.Below(ranks)].push_back(v);
      Sums total{std::vector<int32_t>(blocks * limbs * kBlock, 0), std::vector<int32_t>(blocks, kZero)};
      for (const auto& mine : owned) {
        const Sums part = OfRank(grads, mine, exponents, bits, limbs);
        for (size_t i = 0; i < part.sums.size(); ++i) total.sums[i] += part.sums[i];
        for (size_t b = 0; b < blocks; ++b) total.maxima[b] = std::max(total.maxima[b], part.maxima[b]);
      }
      ASSERT_EQ(total.maxima, alone.maxima);
      ASSERT_TRUE(total.sums == alone.sums);
      ASSERT_EQ(Overflowed(total.maxima, exponents), Overflowed(alone.maxima, exponents));
    }
  }
}

TEST(Accumulate, OverflowIsJudgedPerMicroBatchNotPerSum) {
  // Two micro-batches that cancel: the sum is small, but each of them is over the limit.
  std::vector<float> plus(kBlock, 0.0F);
  std::vector<float> minus(kBlock, 0.0F);
  plus[5] = 8.5F;
  minus[5] = -8.5F;
  const std::vector<int32_t> exponents{3};
  Sums s{std::vector<int32_t>(kBlock), {kZero}};
  Accumulate(plus, exponents, QuantumBits(2), true, s.sums, s.maxima);
  Accumulate(minus, exponents, QuantumBits(2), false, s.sums, s.maxima);
  EXPECT_TRUE(Overflowed(s.maxima, exponents));
  EXPECT_EQ(s.maxima[0], 4);
}

TEST(Accumulate, UnknownExponentsTakeZerosOnly) {
  const std::vector<int32_t> exponents{kUnknown, kUnknown};
  std::vector<float> grads(2 * kBlock, -0.0F);
  Sums s{std::vector<int32_t>(2 * kBlock, 9), {kZero, kZero}};
  Accumulate(grads, exponents, 24, true, s.sums, s.maxima);
  EXPECT_FALSE(Overflowed(s.maxima, exponents));
  EXPECT_EQ(s.sums, std::vector<int32_t>(2 * kBlock, 0));
  grads[kBlock + 3] = 0x1p-149F;
  Accumulate(grads, exponents, 24, true, s.sums, s.maxima);
  EXPECT_TRUE(Overflowed(s.maxima, exponents));
  EXPECT_EQ(s.maxima, (std::vector<int32_t>{kZero, -149}));
}

}  // namespace
}  // namespace ringmaster::numerics
