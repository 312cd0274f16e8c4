// SPDX-License-Identifier: Apache-2.0

// Layer normalisation over rows of `width`, epsilon 1e-5 as in GPT-2.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

inline constexpr float kLayerNormEpsilon = 1e-5f;

// out = (x - mean) * rstd * gamma + beta; mean and rstd (one per row) are kept for backward.
using LayerNormForwardFn = void(int64_t rows, int64_t width, const float* x, const float* gamma,
                                const float* beta, float* out, float* mean, float* rstd);
RM_DECLARE_KERNEL(LayerNormForward)

// dx += gradient of the input (the residual stream already holds the other path's).
using LayerNormBackwardFn = void(int64_t rows, int64_t width, const float* dy, const float* x,
                                 const float* gamma, const float* mean, const float* rstd, float* dx);
RM_DECLARE_KERNEL(LayerNormBackward)

// dgamma, dbeta for columns [begin, end): sums over all rows in order.
using LayerNormBackwardParamsFn = void(int64_t rows, int64_t width, int64_t begin, int64_t end,
                                       const float* dy, const float* x, const float* mean, const float* rstd,
                                       float* dgamma, float* dbeta);
RM_DECLARE_KERNEL(LayerNormBackwardParams)

}  // namespace ringmaster::engine::kernels
