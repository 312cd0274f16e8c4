// SPDX-License-Identifier: Apache-2.0

// Each operation is one float operation of IEEE 754, with subnormals (cmake/Compiler.cmake has the flags).
// Intrinsics prevent contraction, so the bits equal those of worker/compute/optimizer/reference.cc.
#include "worker/compute/cuda/kernels/optimizer.h"

#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr int kStepQuad = 4;
// A CUDA block computes one block of the arena.
constexpr int kStepThreads = static_cast<int>(engine::kBlock) / kStepQuad;

// The first element of this thread, and how many elements from there on are trainable.
struct Place {
  int64_t first;
  int live;
  bool decays;
};

__device__ __forceinline__ Place PlaceOf(const Arena& arena) {
  const BlockRule rule = arena.rules[blockIdx.x];
  const int inside = static_cast<int>(threadIdx.x) * kStepQuad;
  return {static_cast<int64_t>(blockIdx.x) * engine::kBlock + inside, static_cast<int>(rule.live) - inside,
          rule.decays != 0};
}

// As in worker/compute/optimizer/reference.cc.
__device__ __forceinline__ float Normal(float value) {
  return fabsf(value) < optimizer::kSmallestNormal ? 0.0f : value;
}

// Runs with one thread.
template <class Pair>
__global__ void DecideKernel(UpdateDecision decision, Pair* scalars) {
  double factor = 1;
  if (decision.clip_norm > 0) {
    const double clipped = __ddiv_rn(decision.clip_norm, __dadd_rn(*decision.norm, 1e-6));
    factor = clipped < 1 ? clipped : 1;
  }
  const float scale = __double2float_rn(factor);
  scalars->plain.gradient_scale = scale;
  scalars->decayed.gradient_scale = scale;
  scalars->skip = *decision.contributors == decision.required_contributors ? 0 : 1;
}

__global__ void SgdKernel(const SgdPair* scalars, Arena arena) {
  if (scalars->skip != 0) return;
  const Place place = PlaceOf(arena);
  const optimizer::SgdScalars k = place.decays ? scalars->decayed : scalars->plain;
  float g[kStepQuad];
  float p[kStepQuad];
  float b[kStepQuad];
  Load(arena.gradient + place.first, g);
  Load(arena.params + place.first, p);
  Load(arena.state0 + place.first, b);
  RM_UNROLL
  for (int j = 0; j < kStepQuad; ++j) {
    const float scaled = __fmul_rn(g[j], k.gradient_scale);
    const float gradient = __fadd_rn(scaled, __fmul_rn(k.weight_decay, p[j]));
    const float buffer = Normal(__fadd_rn(__fmul_rn(k.momentum, b[j]), gradient));
    p[j] = j < place.live ? Normal(__fadd_rn(p[j], __fmul_rn(k.negative_rate, buffer))) : 0.0f;
    b[j] = j < place.live ? buffer : 0.0f;
  }
  Store(arena.next_params + place.first, p);
  Store(arena.next_state0 + place.first, b);
}

__global__ void AdamWKernel(const AdamWPair* scalars, Arena arena) {
  if (scalars->skip != 0) return;
  const Place place = PlaceOf(arena);
  const optimizer::AdamWScalars k = place.decays ? scalars->decayed : scalars->plain;
  float g[kStepQuad];
  float p[kStepQuad];
  float m[kStepQuad];
  float v[kStepQuad];
  Load(arena.gradient + place.first, g);
  Load(arena.params + place.first, p);
  Load(arena.state0 + place.first, m);
  Load(arena.state1 + place.first, v);
  RM_UNROLL
  for (int j = 0; j < kStepQuad; ++j) {
    const float gradient = __fmul_rn(g[j], k.gradient_scale);
    const float first = Normal(__fadd_rn(m[j], __fmul_rn(k.one_minus_beta1, __fsub_rn(gradient, m[j]))));
    const float fresh = __fmul_rn(__fmul_rn(k.one_minus_beta2, gradient), gradient);
    const float second = Normal(__fadd_rn(__fmul_rn(k.beta2, v[j]), fresh));
    const float corrected = __fmul_rn(__fsqrt_rn(second), k.inverse_root);
    const float ratio = __fdiv_rn(first, __fadd_rn(corrected, k.epsilon));
    const float next = Normal(__fadd_rn(__fmul_rn(p[j], k.keep), __fmul_rn(k.negative_size, ratio)));
    p[j] = j < place.live ? next : 0.0f;
    m[j] = j < place.live ? first : 0.0f;
    v[j] = j < place.live ? second : 0.0f;
  }
  Store(arena.next_params + place.first, p);
  Store(arena.next_state0 + place.first, m);
  Store(arena.next_state1 + place.first, v);
}

}  // namespace

std::vector<BlockRule> MakeBlockRules(const engine::Layout& layout) {
  std::vector<BlockRule> rules(static_cast<size_t>(layout.elements / engine::kBlock));
  for (const engine::Parameter& parameter : layout.parameters) {
    for (int64_t at = 0; at < parameter.size; at += engine::kBlock) {
      const int64_t left = parameter.size - at;
      rules[static_cast<size_t>((parameter.offset + at) / engine::kBlock)] = {
          static_cast<uint16_t>(left < engine::kBlock ? left : engine::kBlock),
          static_cast<uint16_t>(parameter.decay ? 1 : 0)};
    }
  }
  return rules;
}

void DecideUpdate(Stream stream, const UpdateDecision& decision, SgdPair* scalars) {
  Launch(DecideKernel<SgdPair>, 1, 1, 0, stream, decision, scalars);
}

void DecideUpdate(Stream stream, const UpdateDecision& decision, AdamWPair* scalars) {
  Launch(DecideKernel<AdamWPair>, 1, 1, 0, stream, decision, scalars);
}

void Sgd(Stream stream, const SgdPair* scalars, const Arena& arena) {
  Launch(SgdKernel, static_cast<unsigned>(arena.blocks), kStepThreads, 0, stream, scalars, arena);
}

void AdamW(Stream stream, const AdamWPair* scalars, const Arena& arena) {
  Launch(AdamWKernel, static_cast<unsigned>(arena.blocks), kStepThreads, 0, stream, scalars, arena);
}

}  // namespace ringmaster::cuda::kernels
