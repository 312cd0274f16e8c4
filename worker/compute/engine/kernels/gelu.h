// SPDX-License-Identifier: Apache-2.0

// GELU with the tanh approximation, as in GPT-2: 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3),
// which equals x * sigmoid(2u). Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// y[i] = gelu(x[i]). Shape: x, y (n).
using GeluForwardFn = void(int64_t n, const float* x, float* y);
RM_DECLARE_KERNEL(GeluForward)

// d[i] *= gelu'(x[i]). Shape: x, d (n).
using GeluBackwardFn = void(int64_t n, const float* x, float* d);
RM_DECLARE_KERNEL(GeluBackward)

}  // namespace ringmaster::engine::kernels
