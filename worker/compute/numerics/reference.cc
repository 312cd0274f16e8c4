// SPDX-License-Identifier: Apache-2.0

// The definition of the exact numerics, one element at a time. The kernels must give the same bits.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

// Returns the smallest e with |value| <= 2^e. frexp gives |value| = m * 2^e with m in [0.5, 1).
int32_t ExponentOf(float value) {
  if (!std::isfinite(value)) return kNotFinite;
  if (value == 0) return kZero;
  int exponent = 0;
  const float mantissa = std::frexp(std::fabs(value), &exponent);
  return mantissa == 0.5F ? exponent - 1 : exponent;
}

}  // namespace

void AccumulateReference(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                         bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima) {
  CHECK(grads.size() == exponents.size() * kBlock && sums.size() == grads.size() &&
        maxima.size() == exponents.size());
  for (size_t b = 0; b < exponents.size(); ++b) {
    int32_t top = kZero;
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) top = std::max(top, ExponentOf(grads[i]));
    maxima[b] = overwrite ? top : std::max(maxima[b], top);
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      int32_t q = 0;
      if (top != kZero && top <= exponents[b]) {
        // The product is exact in double, so the only rounding is to the nearest integer, ties to even.
        q = static_cast<int32_t>(std::nearbyint(std::ldexp(double{grads[i]}, quantum_bits - exponents[b])));
      }
      sums[i] = overwrite ? q : sums[i] + q;
    }
  }
}

double NormReference(std::span<const float> values) {
  double sum = 0;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    std::array<double, 16> lanes{};
    const size_t end = std::min<size_t>(at + kBlock, values.size());
    for (size_t i = at; i < end; ++i) lanes[(i - at) % 16] += double{values[i]} * double{values[i]};
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sum += lanes[0];
  }
  return std::sqrt(sum);
}

}  // namespace ringmaster::numerics
