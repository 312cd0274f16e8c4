// SPDX-License-Identifier: Apache-2.0

// Softmax with cross-entropy, as torch.nn.functional.cross_entropy without reduction. A row with a negative
// target is ignored.
//
// Shapes: logits (rows, classes); targets, weights, losses, hits (rows). Losses are in nats.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// losses[r] = log(sum over i of exp(logits[r, i])) - logits[r, target], 0 for an ignored row. hits[r] = 1
// when the target has the largest logit, the first of equal ones.
using CrossEntropyFn = void(int64_t rows, int64_t classes, const float* logits, const int32_t* targets,
                            float* losses, uint8_t* hits);
RM_DECLARE_KERNEL(CrossEntropy)

// The same, and replaces logits by weights[r] * (softmax - one-hot), the gradient of weights[r] * losses[r];
// 0 for an ignored row.
using CrossEntropyGradientFn = void(int64_t rows, int64_t classes, float* logits, const int32_t* targets,
                                    const float* weights, float* losses, uint8_t* hits);
RM_DECLARE_KERNEL(CrossEntropyGradient)

}  // namespace ringmaster::engine::kernels
