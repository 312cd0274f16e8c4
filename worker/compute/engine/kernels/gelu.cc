// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/gelu.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

// Returns 1 / (1 + e^(-2u)).
RM_INLINE Floats Gate(const Floats& x, const Floats& square) {
  const Floats minus_2u = x * (Splat(1) + square * Splat(kCubic)) * Splat(-kTwoRootTwoOverPi);
  return Splat(1) / (Splat(1) + Exp(minus_2u));
}

}  // namespace

void GeluForward(int64_t n, const float* x, float* y) {
  ForLanes(n, [&](int64_t i, auto lanes) {
    const Floats v = Load(x + i, lanes);
    Store(y + i, v * Gate(v, v * v), lanes);
  });
}

void GeluBackward(int64_t n, const float* x, float* d) {
  ForLanes(n, [&](int64_t i, auto lanes) {
    const Floats v = Load(x + i, lanes);
    const Floats square = v * v;
    const Floats s = Gate(v, square);
    const Floats slope = (Splat(1) + square * Splat(3 * kCubic)) * Splat(kTwoRootTwoOverPi);
    Store(d + i, Load(d + i, lanes) * (s + v * s * (Splat(1) - s) * slope), lanes);
  });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
