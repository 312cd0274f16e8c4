// SPDX-License-Identifier: Apache-2.0

// Conversions between the largest value of a block, its exponent and the scale factors. Internal to numerics.
// Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {

// Returns the smallest e with |value| <= 2^e, given the bits of |value|.
inline int32_t ExponentOfBits(uint32_t magnitude) {
  const auto biased = static_cast<int32_t>(magnitude >> 23);
  const uint32_t fraction = magnitude & 0x7fffffU;
  if (biased == 255) return kNotFinite;
  if (biased > 0) return biased - 127 + (fraction != 0 ? 1 : 0);
  if (fraction == 0) return kZero;
  return std::bit_width(fraction - 1) - 149;  // a subnormal is fraction * 2^-149
}

inline void CheckExponent(int32_t exponent) {
  CHECK(exponent == kUnknown || (exponent >= kMinExponent && exponent <= kMaxExponent), "exponent {}",
        exponent);
}

// Returns 2^(L - E), a normal float for every valid pair.
inline float QuantiseScale(int quantum_bits, int32_t exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(quantum_bits - exponent + 127) << 23);
}

// Returns 2^L, the scale of limb 1 relative to limb 0.
inline float LimbScale(int quantum_bits) { return static_cast<float>(int64_t{1} << quantum_bits); }

// Returns 2^(E - L) * scale; `quantum_bits` are those of all limbs. A block of unknown exponent holds only
// zeros.
inline double DecodeFactor(int quantum_bits, int32_t exponent, double scale) {
  return exponent == kUnknown ? 0.0 : std::ldexp(1.0, exponent - quantum_bits) * scale;
}

}  // namespace ringmaster::numerics
