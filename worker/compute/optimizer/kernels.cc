// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/optimizer/kernels.h"

#include <vector>

#include "worker/compute/engine/cpu_variants.h"

namespace ringmaster::optimizer {
namespace {

RM_BODY float Normal(float value) { return __builtin_fabsf(value) < kSmallestNormal ? 0.0F : value; }

RM_BODY void SgdLoop(const SgdScalars& s, const Slices& slices) {
  const size_t n = slices.params.size();
  const float* gradient = slices.gradient.data();
  const float* params = slices.params.data();
  const float* buffer = slices.state0.data();
  float* next_params = slices.next_params.data();
  float* next_buffer = slices.next_state0.data();
  const SgdScalars k = s;
  RM_NO_OVERLAP
  for (size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * k.gradient_scale + k.weight_decay * params[i];
    const float b = Normal(k.momentum * buffer[i] + g);
    next_params[i] = Normal(params[i] + k.negative_rate * b);
    next_buffer[i] = b;
  }
}

RM_BODY void AdamWLoop(const AdamWScalars& s, const Slices& slices) {
  const size_t n = slices.params.size();
  const float* gradient = slices.gradient.data();
  const float* params = slices.params.data();
  const float* m_in = slices.state0.data();
  const float* v_in = slices.state1.data();
  float* next_params = slices.next_params.data();
  float* m_out = slices.next_state0.data();
  float* v_out = slices.next_state1.data();
  const AdamWScalars k = s;
  RM_NO_OVERLAP
  for (size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * k.gradient_scale;
    const float m = Normal(m_in[i] + k.one_minus_beta1 * (g - m_in[i]));
    const float v = Normal(k.beta2 * v_in[i] + k.one_minus_beta2 * g * g);
    const float denominator = __builtin_sqrtf(v) * k.inverse_root + k.epsilon;
    next_params[i] = Normal(params[i] * k.keep + k.negative_size * (m / denominator));
    m_out[i] = m;
    v_out[i] = v;
  }
}

#define RM_VARIANT(name, attribute)                                                           \
  namespace name {                                                                            \
  attribute void Sgd(const SgdScalars& s, const Slices& slices) { SgdLoop(s, slices); }       \
  attribute void AdamW(const AdamWScalars& s, const Slices& slices) { AdamWLoop(s, slices); } \
  constexpr Kernels kKernels{#name, Sgd, AdamW};                                              \
  }

RM_VARIANT(plain, )
#if defined(__x86_64__)
RM_VARIANT(avx2, RM_TARGET_AVX2)
#endif

std::vector<Kernels> Detect() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  // No AVX-512 variant: its division and square root are not faster per element.
  if (__builtin_cpu_supports("avx2")) found.push_back(avx2::kKernels);
#endif
  found.push_back(plain::kKernels);
  return found;
}

}  // namespace

std::span<const Kernels> AvailableKernels() {
  static const std::vector<Kernels> kernels = Detect();
  return kernels;
}

}  // namespace ringmaster::optimizer
