// SPDX-License-Identifier: Apache-2.0

// Layer normalisation over the last dimension, epsilon 1e-5 as in GPT-2: out = (x - mean) * rstd * gamma +
// beta. Source: Ba, Kiros and Hinton 2016, "Layer Normalization". Activations are of type T (float or Bf16);
// parameters, their gradients and statistics are float.
//
// Shapes: x, out, dy, dx, residual, add, sum (rows, C); gamma, beta, d_gamma, d_beta, bias (C); mean, rstd
// (rows), which forward keeps for backward. C is `width`.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// The largest width: backward keeps the sums of two rows in shared memory, which fit on every GPU since
// sm_80.
inline constexpr int64_t kLargestNormWidth = 12288;

// rstd = 1 / sqrt(variance + epsilon), with the biased variance.
template <class T>
void LayerNormForward(Stream stream, int64_t rows, int64_t width, const T* x, const float* gamma,
                      const float* beta, T* out, float* mean, float* rstd);

// Normalises sum = residual + (add + bias) and stores `sum`: adds the result of a product to the residual
// stream and normalises it in one pass. bias may be null; sum may be the memory of residual or add.
template <class T>
void ResidualLayerNormForward(Stream stream, int64_t rows, int64_t width, const T* residual, const T* add,
                              const float* bias, const float* gamma, const float* beta, T* sum, T* out,
                              float* mean, float* rstd);

// dx = the gradient of x, or dx += it with `accumulate`. Overwrites d_gamma and d_beta, and dx_sums unless it
// is null: the sums of dx over rows, which are the gradient of a bias that was added to x. Sums over rows run
// in two stages with an order that depends on the shape only. `scratch` holds LayerNormBackwardScratch
// floats.
int64_t LayerNormBackwardScratch(int64_t rows, int64_t width);
template <class T>
void LayerNormBackward(Stream stream, int64_t rows, int64_t width, const T* dy, const T* x,
                       const float* gamma, const float* mean, const float* rstd, bool accumulate, T* dx,
                       float* d_gamma, float* d_beta, float* dx_sums, float* scratch);

}  // namespace ringmaster::cuda::kernels
