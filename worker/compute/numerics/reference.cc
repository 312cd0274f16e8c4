// SPDX-License-Identifier: Apache-2.0

// The definition of the exact numerics, one element at a time. The kernels must give the same bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/subnormals.h"
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
  const size_t limbs = sums.size() / grads.size();
  CHECK(grads.size() == exponents.size() * kBlock && sums.size() == grads.size() * limbs &&
        maxima.size() == exponents.size());
  const KeepSubnormals keep;
  for (size_t b = 0; b < exponents.size(); ++b) {
    int32_t top = kZero;
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) top = std::max(top, ExponentOf(grads[i]));
    maxima[b] = overwrite ? top : std::max(maxima[b], top);
    for (size_t i = 0; i < kBlock; ++i) {
      double left = 0;
      if (top != kZero && top <= exponents[b]) {
        left = std::ldexp(double{grads[b * kBlock + i]}, quantum_bits - exponents[b]);
      }
      for (size_t limb = 0; limb < limbs; ++limb) {
        // Products and differences are exact in double: the only rounding is to the nearest integer, ties to
        // even, and the rest goes to the next limb.
        const double q = std::nearbyint(left);
        int32_t& sum = sums[(b * limbs + limb) * kBlock + i];
        sum = static_cast<int32_t>(q) + (overwrite ? 0 : sum);
        left = std::ldexp(left - q, quantum_bits);
      }
    }
  }
}

void DecodeReference(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                     double scale, std::span<float> out) {
  const size_t limbs = sums.size() / out.size();
  const KeepSubnormals keep;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t b = i / kBlock;
    int64_t sum = 0;  // with two limbs below 2^61
    for (size_t limb = 0; limb < limbs; ++limb)
      sum = (sum << quantum_bits) + sums[(b * limbs + limb) * kBlock + i % kBlock];
    const int bits = static_cast<int>(limbs) * quantum_bits;
    const double factor = exponents[b] == kUnknown ? 0.0 : std::ldexp(1.0, exponents[b] - bits) * scale;
    out[i] = static_cast<float>(static_cast<double>(sum) * factor);
  }
}

double NormReference(std::span<const float> values) {
  const KeepSubnormals keep;
  std::vector<double> groups((values.size() + kNormGroup * kBlock - 1) / (kNormGroup * kBlock));
  for (size_t at = 0; at < values.size(); at += kBlock) {
    std::array<double, 16> lanes{};
    const size_t end = std::min<size_t>(at + kBlock, values.size());
    for (size_t i = at; i < end; ++i) lanes[(i - at) % 16] += double{values[i]} * double{values[i]};
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    groups[at / (kNormGroup * kBlock)] += lanes[0];
  }
  double sum = 0;
  for (const double group : groups) sum += group;
  return std::sqrt(sum);
}

}  // namespace ringmaster::numerics
