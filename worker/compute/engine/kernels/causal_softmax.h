// SPDX-License-Identifier: Apache-2.0

// The pointwise half of causal attention: soft-max over the keys a query may see, and its gradient. `scores`
// are products q.k before scaling, [rows, keys]; row r sees keys 0 .. first + r, the others get 0.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// In place: scores become probabilities. lse[r] = log of the sum of exp(scale * score), all that backward
// needs to find the probabilities again.
using CausalSoftmaxFn = void(int64_t rows, int64_t keys, int64_t first, float scale, float* scores,
                             float* lse);
RM_DECLARE_KERNEL(CausalSoftmax)

// scores become probabilities again; d (gradient of the probabilities) becomes the gradient of the scores:
// p * (d - delta[r]) * scale, with delta[r] = sum over keys of p * d, which equals out . d_out of the row.
using CausalSoftmaxBackwardFn = void(int64_t rows, int64_t keys, int64_t first, float scale, const float* lse,
                                     const float* delta, float* scores, float* d);
RM_DECLARE_KERNEL(CausalSoftmaxBackward)

// dots[r] = sum over i of a[r, i] * b[r, i].
using RowDotsFn = void(int64_t rows, int64_t width, const float* a, int64_t lda, const float* b, int64_t ldb,
                       float* dots);
RM_DECLARE_KERNEL(RowDots)

}  // namespace ringmaster::engine::kernels
