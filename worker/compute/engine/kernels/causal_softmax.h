// SPDX-License-Identifier: Apache-2.0

// The pointwise half of causal attention (attention.h): softmax over the keys that a query sees, and its
// gradient.
//
// Shapes: scores and d (rows, keys), one row per query; lse and delta (rows). Row r sees keys 0 .. first + r;
// the probabilities of the other keys are 0. `scores` are q.k before scaling.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// Replaces scores by probabilities: p = exp(scale * score - lse[r]), with lse[r] = log(sum over keys of
// exp(scale * score)). Backward recomputes the probabilities from lse.
using CausalSoftmaxFn = void(int64_t rows, int64_t keys, int64_t first, float scale, float* scores,
                             float* lse);
RM_DECLARE_KERNEL(CausalSoftmax)

// Replaces scores by probabilities p, and d, the gradient of p, by the gradient of the scores:
// p * (d - delta[r]) * scale. delta[r] = sum over keys of p * d, which equals out[r] . d_out[r].
using CausalSoftmaxBackwardFn = void(int64_t rows, int64_t keys, int64_t first, float scale, const float* lse,
                                     const float* delta, float* scores, float* d);
RM_DECLARE_KERNEL(CausalSoftmaxBackward)

// dots[r] = sum over i of a[r, i] * b[r, i]. Shape: a, b (rows, width) with row strides lda and ldb; dots
// (rows).
using RowDotsFn = void(int64_t rows, int64_t width, const float* a, int64_t lda, const float* b, int64_t ldb,
                       float* dots);
RM_DECLARE_KERNEL(RowDots)

}  // namespace ringmaster::engine::kernels
