// SPDX-License-Identifier: Apache-2.0

// Layer normalisation over rows of `width`, epsilon 1e-5 as in GPT-2. Activations are T (float or Bf16),
// parameters, statistics and gradients of parameters float.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// Backward keeps sums of two rows in shared memory; all GPUs since sm_80 have room for so many.
inline constexpr int64_t kLargestNormWidth = 12288;

// out = (x - mean) * rstd * gamma + beta; mean and rstd (one per row) are kept for backward.
template <class T>
void LayerNormForward(Stream stream, int64_t rows, int64_t width, const T* x, const float* gamma,
                      const float* beta, T* out, float* mean, float* rstd);

// The same of sum = residual + (add + bias), which is kept: what a product leaves for the residual stream and
// the normalisation behind it, in one pass. bias may be null; sum may be residual or add.
template <class T>
void ResidualLayerNormForward(Stream stream, int64_t rows, int64_t width, const T* residual, const T* add,
                              const float* bias, const float* gamma, const float* beta, T* sum, T* out,
                              float* mean, float* rstd);

// dx = (or +=, with `accumulate`) the gradient of the input; d_gamma and d_beta are overwritten. Sums over
// rows go in two stages whose order depends on the shape alone; `scratch` holds LayerNormBackwardScratch
// floats.
int64_t LayerNormBackwardScratch(int64_t rows, int64_t width);
template <class T>
void LayerNormBackward(Stream stream, int64_t rows, int64_t width, const T* dy, const T* x,
                       const float* gamma, const float* mean, const float* rstd, bool accumulate, T* dx,
                       float* d_gamma, float* d_beta, float* scratch);

}  // namespace ringmaster::cuda::kernels
