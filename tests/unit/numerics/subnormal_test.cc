// SPDX-License-Identifier: Apache-2.0

// Programs may flush subnormals to zero. What follows a micro-batch keeps them on every thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/subnormals.h"
#include "tests/unit/numerics/flushing.h"
#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

// Values around the smallest normal float, of which the quantum of the lowest exponent is a part.
std::vector<float> Tiny(SplitMix64& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(std::ldexp(random.Uniform() * 4 - 2, -127));
  return values;
}

#if defined(__SSE2__)
TEST(Subnormals, AreFlushedExceptInAScopeThatKeepsThem) {
  volatile float smallest = 0x1p-126F;
  WhileFlushing([&] {
    EXPECT_EQ(smallest * 0.5F, 0);
    {
      const KeepSubnormals keep;
      EXPECT_NE(smallest * 0.5F, 0);
      {
        const KeepSubnormals nested;
        EXPECT_NE(smallest * 0.5F, 0);
      }
      EXPECT_NE(smallest * 0.5F, 0);
    }
    EXPECT_EQ(smallest * 0.5F, 0);
  });
  EXPECT_NE(smallest * 0.5F, 0);
}
#endif

TEST(Subnormals, SumsKeepThemOnEveryThread) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SplitMix64 random(seed);
    const std::vector<float> grads = Tiny(random, kBlock);
    const std::vector<int32_t> exponents{kMinExponent};
    const int bits = 30;  // one micro-batch: the quantum is 2^-126
    std::vector<int32_t> want(kBlock), got(kBlock), want_maxima(1), maxima(1);
    AccumulateReference(grads, exponents, bits, true, want, want_maxima);
    ASSERT_GT(std::ranges::count_if(want, [](int32_t q) { return q != 0; }), 100);
    WhileFlushing([&] { Accumulate(grads, exponents, bits, true, got, maxima); });
    ASSERT_EQ(maxima, want_maxima);
    ASSERT_TRUE(got == want) << "seed " << seed;
  }
}

TEST(Subnormals, SumsOfTwoLimbsKeepThemOnEveryThread) {
  SplitMix64 random(2);
  const std::vector<float> grads = Tiny(random, kBlock);
  const std::vector<int32_t> exponents{kMinExponent};
  const int bits = 14;  // 65,536 micro-batches: limb 1 has the quantum 2^-124
  std::vector<int32_t> want(2 * kBlock), got(2 * kBlock), want_maxima(1), maxima(1);
  AccumulateReference(grads, exponents, bits, true, want, want_maxima);
  std::vector<float> want_out(kBlock), out(kBlock);
  want[kBlock + 5] = 1;
  DecodeReference(want, exponents, bits, 1.0 / 1024, want_out);
  ASSERT_NE(want_out[5], 0);
  want[kBlock + 5] = 0;
  WhileFlushing([&] {
    Accumulate(grads, exponents, bits, true, got, maxima);
    EXPECT_TRUE(got == want);
    got[kBlock + 5] = 1;
    Decode(got, exponents, bits, 1.0 / 1024, out);
  });
  EXPECT_EQ(std::memcmp(out.data(), want_out.data(), kBlock * sizeof(float)), 0);
}

TEST(Subnormals, DecodeKeepsThemOnEveryThread) {
  SplitMix64 random(1);
  std::vector<int32_t> sums(kBlock);
  for (int32_t& sum : sums) sum = static_cast<int32_t>(random.Below(2000)) - 1000;
  const std::vector<int32_t> exponents{kMinExponent};
  std::vector<float> want(kBlock), got(kBlock);
  for (size_t i = 0; i < kBlock; ++i)
    want[i] = static_cast<float>(std::ldexp(double{1}, kMinExponent - 30) * (1.0 / 64) * sums[i]);
  ASSERT_GT(std::ranges::count_if(want, [](float v) { return v != 0 && std::fabs(v) < 0x1p-126F; }), 50);
  WhileFlushing([&] { Decode(sums, exponents, 30, 1.0 / 64, got); });
  ASSERT_EQ(std::memcmp(got.data(), want.data(), kBlock * sizeof(float)), 0);
}

TEST(Subnormals, TheNormKeepsThemOnEveryThread) {
  SplitMix64 random(1);
  const std::vector<float> values = Tiny(random, 3000);
  const double want = NormReference(values);
  double got = 0;
  WhileFlushing([&] { got = Norm(values); });
  EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want));
}

}  // namespace
}  // namespace ringmaster::numerics
