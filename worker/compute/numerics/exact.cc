// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/numerics/exact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/subnormals.h"
#include "worker/compute/numerics/exponent.h"
#include "worker/compute/numerics/kernels.h"

namespace ringmaster::numerics {

namespace {

constexpr int32_t kSlack = 2;

bool Usable(int32_t maximum) { return maximum > kZero && maximum != kNotFinite; }

}  // namespace

int LimbsOf(size_t sums, size_t blocks) {
  const int limbs = sums == blocks * kBlock ? 1 : kMaxLimbs;
  CHECK(sums == blocks * kBlock * static_cast<size_t>(limbs), "{} sums in {} blocks", sums, blocks);
  return limbs;
}

int QuantumBits(int micro_batches) {
  CHECK(micro_batches >= 1 && micro_batches <= 65536, "micro-batches {}", micro_batches);
  return 30 - std::bit_width(static_cast<uint32_t>(micro_batches - 1));
}

void Accumulate(std::span<const float> grads, std::span<const int32_t> exponents, int quantum_bits,
                bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima) {
  const size_t blocks = exponents.size();
  const auto limbs = static_cast<size_t>(LimbsOf(sums.size(), blocks));
  CHECK(grads.size() == blocks * kBlock && maxima.size() == blocks);
  CHECK(quantum_bits >= 14 && quantum_bits <= 30, "quantum bits {}", quantum_bits);
  const Kernels& kernels = AvailableKernels().front();
  const KeepSubnormals keep;
  for (size_t b = 0; b < blocks; ++b) {
    CheckExponent(exponents[b]);
    const float* in = grads.data() + b * kBlock;
    int32_t* out = sums.data() + b * limbs * kBlock;
    const int32_t top = ExponentOfBits(kernels.max_bits(in));
    maxima[b] = overwrite ? top : std::max(maxima[b], top);
    if (top == kZero || top > exponents[b]) {
      if (overwrite) std::fill_n(out, limbs * kBlock, 0);
      continue;
    }
    const float scale = QuantiseScale(quantum_bits, exponents[b]);
    if (limbs == 1) {
      (overwrite ? kernels.quantise : kernels.quantise_add)(in, scale, out);
    } else {
      (overwrite ? kernels.quantise_wide : kernels.quantise_wide_add)(in, scale, LimbScale(quantum_bits),
                                                                      out);
    }
  }
}

bool Overflowed(std::span<const int32_t> maxima, std::span<const int32_t> exponents) {
  CHECK(maxima.size() == exponents.size());
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] > kZero && maxima[b] != kNotFinite && maxima[b] > exponents[b]) return true;
  }
  return false;
}

bool NotFinite(std::span<const int32_t> maxima) {
  return std::find(maxima.begin(), maxima.end(), kNotFinite) != maxima.end();
}

void ExponentsForRedo(std::span<const int32_t> maxima, std::span<int32_t> exponents) {
  CHECK(maxima.size() == exponents.size());
  for (size_t b = 0; b < maxima.size(); ++b) {
    if (Usable(maxima[b])) exponents[b] = std::max(exponents[b], std::max(maxima[b], kMinExponent));
  }
}

void ExponentsForNext(const engine::Layout& layout, std::span<const int32_t> maxima, int64_t step,
                      std::span<int32_t> exponents) {
  CHECK(maxima.size() == exponents.size() && static_cast<int64_t>(maxima.size()) * kBlock == layout.elements);
  const int32_t sink = step % kSinkEvery == 0 ? 1 : 0;
  for (const engine::Parameter& parameter : layout.parameters) {
    const auto first = static_cast<size_t>(parameter.offset / kBlock);
    const auto end = static_cast<size_t>((parameter.offset + parameter.size + kBlock - 1) / kBlock);
    int32_t top = kUnknown;
    for (size_t b = first; b < end; ++b) {
      if (Usable(maxima[b])) top = std::max(top, maxima[b]);
    }
    if (top == kUnknown) continue;
    for (size_t b = first; b < end; ++b) {
      int32_t exponent = std::max(top, exponents[b] - sink);
      if (Usable(maxima[b])) exponent = std::max(exponent, maxima[b] + kSlack);
      exponents[b] = std::clamp(exponent, kMinExponent, kMaxExponent);
    }
  }
}

void Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits, double scale,
            std::span<float> out) {
  const auto limbs = static_cast<size_t>(LimbsOf(sums.size(), exponents.size()));
  CHECK(out.size() == exponents.size() * kBlock);
  const Kernels& kernels = AvailableKernels().front();
  const KeepSubnormals keep;
  for (size_t b = 0; b < exponents.size(); ++b) {
    CheckExponent(exponents[b]);
    const int32_t* in = sums.data() + b * limbs * kBlock;
    float* to = out.data() + b * kBlock;
    const double factor = DecodeFactor(static_cast<int>(limbs) * quantum_bits, exponents[b], scale);
    if (limbs == 1) {
      kernels.decode(in, factor, to);
    } else {
      kernels.decode_wide(in, factor, LimbScale(quantum_bits), to);
    }
  }
}

double Norm(std::span<const float> values) {
  const Kernels& kernels = AvailableKernels().front();
  const KeepSubnormals keep;
  double sum = 0;
  double group = 0;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    group += kernels.sum_squares(values.data() + at,
                                 static_cast<int64_t>(std::min<size_t>(kBlock, values.size() - at)));
    if ((at / kBlock + 1) % kNormGroup == 0) sum += std::exchange(group, 0.0);
  }
  return std::sqrt(sum + group);
}

void Add(std::span<const float> values, std::span<float> sums) {
  CHECK(values.size() == sums.size());
  AvailableKernels().front().add(values.data(), static_cast<int64_t>(values.size()), sums.data());
}

void Multiply(std::span<const float> values, float factor, std::span<float> out) {
  CHECK(values.size() == out.size());
  AvailableKernels().front().multiply(values.data(), static_cast<int64_t>(values.size()), factor, out.data());
}

double OrderedSum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace ringmaster::numerics
