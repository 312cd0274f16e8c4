// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/gelu.h"

#include <cmath>
#include <numbers>

namespace ringmaster::engine::kernels::reference {
namespace {
const double kRoot = std::sqrt(2 * std::numbers::inv_pi);
}

void GeluForward(int64_t n, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    y[i] = static_cast<float>(0.5 * v * (1 + std::tanh(kRoot * (v + 0.044715 * v * v * v))));
  }
}

void GeluBackward(int64_t n, const float* x, float* d) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double t = std::tanh(kRoot * (v + 0.044715 * v * v * v));
    const double slope = kRoot * (1 + 3 * 0.044715 * v * v);
    d[i] = static_cast<float>(d[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope));
  }
}

}  // namespace ringmaster::engine::kernels::reference
