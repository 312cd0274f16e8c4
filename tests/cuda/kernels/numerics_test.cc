// SPDX-License-Identifier: Apache-2.0

// The exact numerics on device memory give the bits of worker/compute/numerics.
#include "worker/compute/cuda/kernels/numerics.h"

#include <bit>
#include <cmath>

#include "tests/cuda/kernels/kernel_test.h"
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
    }
    const auto [sums, maxima] = InAllOrders([&] {
      const Guarded<int32_t> e(exponents);
      Guarded<int32_t> s(blocks * kBlock), m(blocks);
      for (size_t turn = 0; turn < turns.size(); ++turn) {
        const Guarded<float> grads(turns[turn]);
        Accumulate(kStream, static_cast<int64_t>(blocks), grads.get(), e.get(), bits, turn == 0, s.get(),
                   m.get());
      }
      return std::tuple(s.values(), m.values());
    });
    std::vector<int32_t> want(blocks * kBlock), want_maxima(blocks);
    for (size_t turn = 0; turn < turns.size(); ++turn) {
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
    const auto [out, in_place] = InAllOrders([&] {
      Guarded<int32_t> s(sums);
      const Guarded<int32_t> e(exponents);
      Guarded<float> to(sums.size());
      const auto n = static_cast<int64_t>(blocks);
      Decode(kStream, n, s.get(), e.get(), bits, scale, to.get());
      Decode(kStream, n, s.get(), e.get(), bits, scale, reinterpret_cast<float*>(s.get()));
      return std::tuple(to.values(), s.values());
    });
    std::vector<float> want(sums.size());
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
  Guarded<double> result(1), scratch(2);
  Norm(kStream, 2000, in.get(), result.get(), scratch.get());
  EXPECT_TRUE(std::isinf(result.values()[0]));
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
