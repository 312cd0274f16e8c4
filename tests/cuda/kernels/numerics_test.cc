// SPDX-License-Identifier: Apache-2.0

// The exact numerics on device memory give the bits of worker/compute/numerics.
#include "worker/compute/cuda/kernels/numerics.h"

#include <bit>
#include <cmath>

#include "tests/cuda/kernels/kernel_test.h"
#include "tests/unit/numerics/flushing.h"
#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::cuda::kernels {
namespace {

using numerics::kBlock;

std::vector<int32_t> RandomExponents(SplitMix64& random, size_t blocks) {
  std::vector<int32_t> exponents(blocks);
  for (int32_t& e : exponents) {
    e = random.Chance(0.1)
            ? numerics::kUnknown
            : numerics::kMinExponent +
                  static_cast<int32_t>(random.Below(numerics::kMaxExponent - numerics::kMinExponent + 1));
    if (random.Chance(0.3)) e = static_cast<int32_t>(random.Below(5)) + 126;
  }
  return exponents;
}

TEST(Accumulate, HasTheBitsOfTheReferenceOnEdgeCases) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    const size_t blocks = 1 + random.Below(11);
    const int limbs = 1 + static_cast<int>(seed % 2);
    const size_t n = blocks * kBlock * static_cast<size_t>(limbs);
    const int bits = 14 + static_cast<int>(random.Below(15));
    const std::vector<int32_t> exponents = RandomExponents(random, blocks);
    std::vector<std::vector<float>> turns;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float>& grads = turns.emplace_back();
      for (size_t b = 0; b < blocks; ++b) {
        std::vector<float> values =
            random.Chance(0.4)
                ? numerics::Awkward(random, kBlock, random.Chance(0.2))
                : numerics::Ordinary(
                      random, kBlock,
                      std::clamp(exponents[b] - 3 + static_cast<int>(random.Below(3)), -140, 124));
        if (random.Chance(0.1)) values.assign(kBlock, 0.0f);
        grads.insert(grads.end(), values.begin(), values.end());
      }
      grads.resize(grads.size() - random.Below(turn == 1 ? grads.size() + 1 : kBlock));
    }
    const auto [sums, maxima] = InAllOrders([&] {
      const Guarded<int32_t> e(exponents);
      Guarded<int32_t> s(n), m(blocks);
      for (size_t turn = 0; turn < turns.size(); ++turn) {
        // The third one is not aligned to an access of a thread.
        std::vector<float> shifted(turn == 2 ? 1 : 0);
        shifted.insert(shifted.end(), turns[turn].begin(), turns[turn].end());
        const Guarded<float> grads(shifted);
        Accumulate(kStream, static_cast<int64_t>(blocks), grads.get() + (shifted.size() - turns[turn].size()),
                   static_cast<int64_t>(turns[turn].size()), e.get(), bits, limbs, turn == 0, s.get(),
                   m.get());
      }
      return std::tuple(s.values(), m.values());
    });
    std::vector<int32_t> want(n), want_maxima(blocks);
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      turns[turn].resize(blocks * kBlock);  // what is missing counts as zero
      numerics::AccumulateReference(turns[turn], exponents, bits, turn == 0, want, want_maxima);
    }
    ASSERT_EQ(maxima, want_maxima);
    ASSERT_TRUE(sums == want);
  }
}

TEST(Decode, HasTheBitsOfTheCpuAlsoInPlace) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    const size_t blocks = 1 + random.Below(9);
    const int bits = 14 + static_cast<int>(random.Below(17));
    const std::vector<int32_t> exponents = RandomExponents(random, blocks);
    std::vector<int32_t> sums(blocks * kBlock);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = static_cast<int32_t>(random.Next());
      if (exponents[i / kBlock] == numerics::kUnknown) sums[i] = 0;
    }
    const double scale = 1.0 / static_cast<double>(1 + random.Below(1000));
    const int limbs = 1 + static_cast<int>(seed % 2);
    if (limbs == 2) sums.resize(2 * sums.size(), static_cast<int32_t>(random.Next()) >> 2);
    if (limbs == 2) {
      for (size_t b = 0; b < blocks; ++b) {
        if (exponents[b] == numerics::kUnknown)
          std::fill_n(sums.begin() + static_cast<int64_t>(2 * b * kBlock), 2 * kBlock, 0);
      }
    }
    const auto [out, in_place] = InAllOrders([&] {
      Guarded<int32_t> s(sums);
      const Guarded<int32_t> e(exponents);
      Guarded<float> to(blocks * kBlock);
      const auto n = static_cast<int64_t>(blocks);
      Decode(kStream, n, s.get(), e.get(), bits, limbs, scale, to.get());
      Decode(kStream, n, s.get(), e.get(), bits, limbs, scale, reinterpret_cast<float*>(s.get()));
      return std::tuple(to.values(), s.values());
    });
    std::vector<float> want(blocks * kBlock);
    numerics::Decode(sums, exponents, bits, scale, want);
    ASSERT_TRUE(SameBits(std::tuple(out), std::tuple(want)));
    ASSERT_EQ(std::memcmp(in_place.data(), want.data(), want.size() * sizeof(float)), 0);
  }
}

TEST(Norm, HasTheBitsOfTheCpuForEveryLength) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1023, 1024, 1025, 5000, 300 * 1024 + 77}) {
    SCOPED_TRACE(n);
    SplitMix64 random(static_cast<uint64_t>(n));
    const std::vector<float> values = numerics::Ordinary(random, static_cast<size_t>(n), -7);
    const auto [norm] = InAllOrders([&] {
      const Guarded<float> in(values);
      Guarded<double> result(1), scratch(static_cast<size_t>(NormScratch(n)));
      Norm(kStream, n, in.get(), result.get(), scratch.get());
      return std::tuple(result.values());
    });
    EXPECT_EQ(std::bit_cast<uint64_t>(norm[0]), std::bit_cast<uint64_t>(numerics::NormReference(values)));
  }
  std::vector<float> infinite(2000, 1.0f);
  infinite[1500] = std::numeric_limits<float>::infinity();
  const Guarded<float> in(infinite);
  Guarded<double> result(1), scratch(static_cast<size_t>(NormScratch(2000)));
  Norm(kStream, 2000, in.get(), result.get(), scratch.get());
  EXPECT_TRUE(std::isinf(result.values()[0]));
}

// The kernels of an emulated GPU run on threads of a trainer, which flush subnormals. A GPU keeps them.
TEST(Subnormals, AreKeptAsOnTheCpu) {
  SplitMix64 random(7);
  std::vector<float> grads(2 * kBlock);
  for (float& g : grads) g = static_cast<float>(std::ldexp(random.Uniform() * 4 - 2, -127));
  const std::vector<int32_t> exponents{numerics::kMinExponent, numerics::kMinExponent};
  std::vector<int32_t> want(2 * kBlock), want_maxima(2);
  numerics::AccumulateReference(grads, exponents, 30, true, want, want_maxima);
  std::vector<float> want_decoded(2 * kBlock);
  numerics::Decode(want, exponents, 30, 1.0 / 64, want_decoded);
  const double want_norm = numerics::NormReference(grads);
  numerics::WhileFlushing([&] {
    const auto [sums, maxima, decoded, norm] = InAllOrders([&] {
      const Guarded<int32_t> e(exponents);
      const Guarded<float> in(grads);
      Guarded<int32_t> s(grads.size()), m(2);
      Guarded<float> out(grads.size());
      Guarded<double> result(1), scratch(static_cast<size_t>(NormScratch(2 * kBlock)));
      Accumulate(kStream, 2, in.get(), 2 * kBlock, e.get(), 30, 1, true, s.get(), m.get());
      Decode(kStream, 2, s.get(), e.get(), 30, 1, 1.0 / 64, out.get());
      Norm(kStream, 2 * kBlock, in.get(), result.get(), scratch.get());
      return std::tuple(s.values(), m.values(), out.values(), result.values());
    });
    EXPECT_TRUE(SameBits(std::tuple(sums, maxima, decoded), std::tuple(want, want_maxima, want_decoded)));
    EXPECT_EQ(std::bit_cast<uint64_t>(norm[0]), std::bit_cast<uint64_t>(want_norm));
  });
}

TEST(FastNumerics, AddAndScaleAreSingleOperations) {
  for (const int64_t n : {0, 1, 1024, 3001}) {
    const std::vector<float> x = RandomFloats(1, n), y = RandomFloats(2, n);
    const float factor = 1.0f / 3.0f;
    const auto [sums] = InAllOrders([&] {
      const Guarded<float> a(x), b(y);
      Guarded<float> s(x.size());
      AddFloats(kStream, n, a.get(), true, s.get());
      AddFloats(kStream, n, b.get(), false, s.get());
      ScaleFloats(kStream, n, factor, s.get(), s.get());
      return std::tuple(s.values());
    });
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sums[i], (x[i] + y[i]) * factor);
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
