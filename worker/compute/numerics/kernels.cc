// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/numerics/kernels.h"

#include <vector>

#include "worker/compute/engine/cpu_variants.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

// Sums, gradients and decoded values may share memory.
using AliasFloat [[gnu::may_alias]] = float;
using AliasInt [[gnu::may_alias]] = int32_t;
using AliasBits [[gnu::may_alias]] = uint32_t;

constexpr int kLanes = 16;

RM_BODY uint32_t MaxBits(const float* values) {
  const auto* bits = reinterpret_cast<const AliasBits*>(values);
  int32_t top = 0;  // the bits are below 2^31, so a signed comparison works; every instruction set has it
  for (int64_t i = 0; i < kBlock; ++i) {
    const auto magnitude = static_cast<int32_t>(bits[i] & 0x7fffffffU);
    top = magnitude > top ? magnitude : top;
  }
  return static_cast<uint32_t>(top);
}

template <bool kAdd>
RM_BODY void Quantise(const float* values, float scale, int32_t* sums) {
  const auto* in = reinterpret_cast<const AliasFloat*>(values);
  auto* out = reinterpret_cast<AliasInt*>(sums);
  RM_NO_OVERLAP
  for (int64_t i = 0; i < kBlock; ++i) {
    const auto q = static_cast<int32_t>(__builtin_rintf(in[i] * scale));
    out[i] = kAdd ? out[i] + q : q;
  }
}

template <bool kAdd>
RM_BODY void QuantiseWide(const float* values, float scale, float limb_scale, int32_t* sums) {
  int32_t* high = sums;
  int32_t* low = sums + kBlock;
  RM_NO_OVERLAP
  for (int64_t i = 0; i < kBlock; ++i) {
    const float x = values[i] * scale;
    const float h = __builtin_rintf(x);
    const auto q = static_cast<int32_t>(h);
    const auto rest = static_cast<int32_t>(__builtin_rintf((x - h) * limb_scale));
    high[i] = kAdd ? high[i] + q : q;
    low[i] = kAdd ? low[i] + rest : rest;
  }
}

RM_BODY void DecodeBlock(const int32_t* sums, double factor, float* out) {
  const auto* in = reinterpret_cast<const AliasInt*>(sums);
  auto* to = reinterpret_cast<AliasFloat*>(out);
  RM_NO_OVERLAP
  for (int64_t i = 0; i < kBlock; ++i) to[i] = static_cast<float>(static_cast<double>(in[i]) * factor);
}

RM_BODY void DecodeWide(const int32_t* sums, double factor, double limb_scale, float* out) {
  const int32_t* high = sums;
  const int32_t* low = sums + kBlock;
  RM_NO_OVERLAP
  for (int64_t i = 0; i < kBlock; ++i) {
    const double sum = static_cast<double>(high[i]) * limb_scale + static_cast<double>(low[i]);
    out[i] = static_cast<float>(sum * factor);
  }
}

RM_BODY double SumSquares(const float* values, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

RM_BODY void AddTo(const float* values, int64_t count, float* sums) {
  RM_NO_OVERLAP
  for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

RM_BODY void MultiplyTo(const float* values, int64_t count, float factor, float* out) {
  RM_NO_OVERLAP
  for (int64_t i = 0; i < count; ++i) out[i] = values[i] * factor;
}

#define RM_VARIANT(name, attribute)                                                                         \
  namespace name {                                                                                          \
  attribute uint32_t Max(const float* v) { return MaxBits(v); }                                             \
  attribute void Set(const float* v, float scale, int32_t* sums) { Quantise<false>(v, scale, sums); }       \
  attribute void Add(const float* v, float scale, int32_t* sums) { Quantise<true>(v, scale, sums); }        \
  attribute void SetWide(const float* v, float scale, float limb, int32_t* sums) {                          \
    QuantiseWide<false>(v, scale, limb, sums);                                                              \
  }                                                                                                         \
  attribute void AddWide(const float* v, float scale, float limb, int32_t* sums) {                          \
    QuantiseWide<true>(v, scale, limb, sums);                                                               \
  }                                                                                                         \
  attribute void Dec(const int32_t* s, double factor, float* out) { DecodeBlock(s, factor, out); }          \
  attribute void DecWide(const int32_t* s, double factor, double limb, float* out) {                        \
    DecodeWide(s, factor, limb, out);                                                                       \
  }                                                                                                         \
  attribute double Squares(const float* v, int64_t count) { return SumSquares(v, count); }                  \
  attribute void Sum(const float* v, int64_t count, float* sums) { AddTo(v, count, sums); }                 \
  attribute void Multiply(const float* v, int64_t count, float factor, float* out) {                        \
    MultiplyTo(v, count, factor, out);                                                                      \
  }                                                                                                         \
  constexpr Kernels kKernels{#name, Max, Set, Add, SetWide, AddWide, Dec, DecWide, Squares, Sum, Multiply}; \
  }

RM_VARIANT(plain, )
#if defined(__x86_64__)
RM_VARIANT(sse41, RM_TARGET_SSE41)
RM_VARIANT(avx2, RM_TARGET_AVX2)
RM_VARIANT(avx512, RM_TARGET_AVX512)
#endif

std::vector<Kernels> Detect() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    found.push_back(avx512::kKernels);
  }
  if (__builtin_cpu_supports("avx2")) found.push_back(avx2::kKernels);
  if (__builtin_cpu_supports("sse4.1")) found.push_back(sse41::kKernels);
#endif
  found.push_back(plain::kKernels);
  return found;
}

}  // namespace

std::span<const Kernels> AvailableKernels() {
  static const std::vector<Kernels> kernels = Detect();
  return kernels;
}

}  // namespace ringmaster::numerics
