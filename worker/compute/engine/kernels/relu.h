// SPDX-License-Identifier: Apache-2.0

// ReLU: max(x, 0). The gradient at 0 is 0.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// x[i] = max(x[i], 0), in place; NaN stays NaN. Shape: x (n).
using ReluForwardFn = void(int64_t n, float* x);
RM_DECLARE_KERNEL(ReluForward)

// d[i] = 0 where y[i], the output of forward, is not positive. Shape: y, d (n).
using ReluBackwardFn = void(int64_t n, const float* y, float* d);
RM_DECLARE_KERNEL(ReluBackward)

}  // namespace ringmaster::engine::kernels
