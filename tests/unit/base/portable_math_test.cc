// SPDX-License-Identifier: Apache-2.0

#include "base/portable_math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"

namespace ringmaster::portable {
namespace {

TEST(PortableMath, AgreesWithTheCLibrary) {
  SplitMix64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(2000)) - 1000);
    ASSERT_NEAR(Log(x), std::log(x), 1e-15 * std::abs(std::log(x))) << x;
    const double near_one = 1 + (random.Uniform() - 0.5) * std::ldexp(1, -static_cast<int>(random.Below(50)));
    ASSERT_NEAR(Log(near_one), std::log(near_one), 1e-15 * std::abs(std::log(near_one))) << near_one;
    const double angle = (random.Uniform() - 0.5) * (i % 2 == 0 ? 4 * std::numbers::pi : 2e6);
    const auto [sine, cosine] = SinCos(angle);
    ASSERT_NEAR(sine, std::sin(angle), 1e-16 + 1e-15 * std::abs(sine)) << angle;
    ASSERT_NEAR(cosine, std::cos(angle), 1e-16 + 1e-15 * std::abs(cosine)) << angle;
    const auto power = static_cast<int64_t>(random.Below(10000));
    const double base = 1 - std::ldexp(random.Uniform(), -static_cast<int>(random.Below(12)));
    ASSERT_NEAR(
        IntegerPower(base, power), std::pow(base, static_cast<double>(power)),
        0x1p-1022 + std::pow(base, static_cast<double>(power)) * static_cast<double>(power + 1) * 0x1p-52)
        << base << "^" << power;
  }
}

TEST(PortableMath, ExactWhereTheResultIs) {
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(2), std::numbers::ln2);
  EXPECT_EQ(SinCos(0).sine, 0);
  EXPECT_EQ(SinCos(0).cosine, 1);
  EXPECT_EQ(SinCos(std::numbers::pi).cosine, -1);
  EXPECT_EQ(SinCos(std::numbers::pi / 2).sine, 1);
  EXPECT_EQ(IntegerPower(0.9, 0), 1);
  EXPECT_EQ(IntegerPower(0.9, 1), 0.9);
  EXPECT_EQ(IntegerPower(0, 5), 0);
  EXPECT_EQ(IntegerPower(2, 62), 0x1p62);
}

TEST(PortableMath, LogarithmOfWhatIsNoPositiveNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Log(infinity), infinity);
  EXPECT_EQ(Log(0), -infinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_DOUBLE_EQ(Log(0x1p-1074), -1074 * std::numbers::ln2);
}

// The constant is the hash on every CPU. It changes only with the formulas, and then so do the weights of
// every run: see numerics/revision.h.
TEST(PortableMath, HashIsTheConstantOfEveryCpu) {
  SplitMix64 random(2);
  std::vector<double> results;
  for (int i = 0; i < 10000; ++i) {
    const double u = random.Uniform();
    results.push_back(Log(u + 0x1p-60));
    const auto [sine, cosine] = SinCos((u - 0.5) * 100);
    results.push_back(sine);
    results.push_back(cosine);
    results.push_back(IntegerPower(0.9 + u / 10, i));
  }
  const uint64_t hash = Hash64(std::as_bytes(std::span(results)));
  EXPECT_EQ(hash, 0x159141b30586fb85u) << fmt::format("0x{:016x}", hash);
}

}  // namespace
}  // namespace ringmaster::portable
