// SPDX-License-Identifier: Apache-2.0

// Layer normalisation over the last dimension, epsilon 1e-5 as in GPT-2: out = (x - mean) * rstd * gamma +
// beta. Source: Ba, Kiros and Hinton 2016, "Layer Normalization".
//
// Shapes: x, out, dy, dx (rows, C); gamma, beta, dgamma, dbeta (C); mean, rstd (rows), which forward keeps
// for backward. C is `width`.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

inline constexpr float kLayerNormEpsilon = 1e-5f;

// rstd = 1 / sqrt(variance + epsilon), with the biased variance.
using LayerNormForwardFn = void(int64_t rows, int64_t width, const float* x, const float* gamma,
                                const float* beta, float* out, float* mean, float* rstd);
RM_DECLARE_KERNEL(LayerNormForward)

// dx += the gradient of x. It is added because dx already holds the gradient of the residual path.
using LayerNormBackwardFn = void(int64_t rows, int64_t width, const float* dy, const float* x,
                                 const float* gamma, const float* mean, const float* rstd, float* dx);
RM_DECLARE_KERNEL(LayerNormBackward)

// dgamma[c] = sum over rows of dy * (x - mean) * rstd and dbeta[c] = sum over rows of dy, for columns c in
// [begin, end), in the order of rows.
using LayerNormBackwardParamsFn = void(int64_t rows, int64_t width, int64_t begin, int64_t end,
                                       const float* dy, const float* x, const float* mean, const float* rstd,
                                       float* dgamma, float* dbeta);
RM_DECLARE_KERNEL(LayerNormBackwardParams)

}  // namespace ringmaster::engine::kernels
