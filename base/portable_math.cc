// SPDX-License-Identifier: Apache-2.0

#include "base/portable_math.h"

#include <bit>
#include <limits>

#include "base/check.h"

namespace ringmaster::portable {
namespace {

// ln(2) and pi/2 in parts (Cody and Waite). The first parts have 33 significant bits, so that products with
// integers of up to 20 bits are exact.
constexpr double kLn2High = 0x1.62e42fefp-1, kLn2Low = 0x1.473de6af278edp-34;
constexpr double kQuarterHigh = 0x1.921fb544p+0, kQuarterMiddle = 0x1.0b4611a6p-34,
                 kQuarterLow = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Adding 1.5 * 2^52 rounds to an integer.
constexpr double kRounds = 0x1.8p52;

}  // namespace

double Log(double x) {
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  // x = m 2^exponent with m in [sqrt(1/2), sqrt(2)).
  const auto bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1023} << 52));
  if (m >= 0x1.6a09e667f3bcdp0) {
    m *= 0.5;
    ++exponent;
  }
  // With f = m - 1, which is exact, and s = f / (2 + f): ln(m) = 2 atanh(s) = 2 s + 2 s^3/3 + 2 s^5/5 + ...
  // The first term that is left out is below 2^-57 of the sum. 2 s = f - s f, which keeps the bits of f.
  const double f = m - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double sum = 0;
#pragma GCC unroll 16
  for (int n = 21; n >= 3; n -= 2) sum = (sum + 2.0 / n) * z;
  const auto e = static_cast<double>(exponent);
  return e * kLn2High + (f + (s * (sum - f) + e * kLn2Low));
}

SineCosine SinCos(double radians) {
  CHECK(radians >= -1e6 && radians <= 1e6, "{}", radians);
  // radians = quarters pi/2 + r with |r| <= pi/4. `rest` is what the rounding of r lost.
  const double quarters = (radians * kTwoOverPi + kRounds) - kRounds;
  const double high = radians - quarters * kQuarterHigh;
  const double middle = quarters * kQuarterMiddle;
  const double low = quarters * kQuarterLow;
  const double r = high - middle - low;
  const double rest = (high - r) - middle - low;
  // Taylor's series; the first terms that are left out are below 2^-60.
  const double z = r * r;
  double sine = 0, cosine = 0;
#pragma GCC unroll 16
  for (int n = 16; n >= 2; n -= 2) {
    sine = (1 - sine) * z * (1.0 / ((n + 1) * n));
    cosine = (1 - cosine) * z * (1.0 / (n * (n - 1)));
  }
  const double sine_r = r - r * sine + rest;
  const double cosine_r = 1 - cosine - r * rest;
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {sine_r, cosine_r};
    case 1:
      return {cosine_r, -sine_r};
    case 2:
      return {-sine_r, -cosine_r};
    default:
      return {-cosine_r, sine_r};
  }
}

double IntegerPower(double base, int64_t exponent) {
  CHECK(exponent >= 0, "exponent {}", exponent);
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) power *= base;
  return power;
}

}  // namespace ringmaster::portable
