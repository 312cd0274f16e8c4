// SPDX-License-Identifier: Apache-2.0

// Random floats for the tests of the exact numerics: normally distributed values, and edge cases of every
// kind.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "base/rng.h"

namespace ringmaster::numerics {

inline double Gauss(SplitMix64& random) {
  const double radius = std::sqrt(-2 * std::log(random.Uniform() + 0x1p-60));
  return radius * std::cos(2 * std::numbers::pi * random.Uniform());
}

// Normally distributed values around 2^center.
inline std::vector<float> Ordinary(SplitMix64& random, size_t count, int center) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(std::ldexp(Gauss(random), center));
  return values;
}

// Zeros of both signs, subnormals, halves (ties of rint), powers of two, the largest and smallest normal
// floats, and with `not_finite` NaNs and infinities.
inline std::vector<float> Awkward(SplitMix64& random, size_t count, bool not_finite) {
  std::vector<float> values(count);
  for (float& value : values) {
    switch (random.Below(not_finite ? 11 : 9)) {
      case 0:
        value = 0.0F;
        break;
      case 1:
        value = -0.0F;
        break;
      case 2:
        value = std::bit_cast<float>(static_cast<uint32_t>(random.Below(1U << 23)));
        break;
      case 3:
        value = static_cast<float>(static_cast<double>(random.Below(64)) + 0.5) * 0x1p-20F;
        break;
      case 4:
        value = std::ldexp(1.0F, static_cast<int>(random.Below(276)) - 149);
        break;
      case 5:
        value = std::numeric_limits<float>::max();
        break;
      case 6:
        value = std::numeric_limits<float>::min();
        break;
      case 7:  // any exponent
        value = std::bit_cast<float>(static_cast<uint32_t>(random.Below(0x7f800000U)));
        break;
      case 8:
        value = static_cast<float>(Gauss(random));
        break;
      case 9:
        value = std::numeric_limits<float>::infinity();
        break;
      default:
        value = std::bit_cast<float>(static_cast<uint32_t>(0x7f800001U + random.Below(0x7ffffe)));
        break;
    }
    if (random.Chance(0.5)) value = -value;
  }
  return values;
}

}  // namespace ringmaster::numerics
