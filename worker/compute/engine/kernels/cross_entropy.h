// SPDX-License-Identifier: Apache-2.0

// Soft-max with cross-entropy over rows of logits. A negative target means that the row does not count.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// losses[r] = log(sum exp(logits)) - logits[target], 0 where the row does not count; hits[r] = 1 where the
// largest logit (the first of equals) is the target's.
using CrossEntropyFn = void(int64_t rows, int64_t classes, const float* logits, const int32_t* targets,
                            float* losses, uint8_t* hits);
RM_DECLARE_KERNEL(CrossEntropy)

// The same, and logits become weights[r] times the gradient of losses[r]: softmax - one-hot, 0 where the row
// does not count.
using CrossEntropyGradientFn = void(int64_t rows, int64_t classes, float* logits, const int32_t* targets,
                                    const float* weights, float* losses, uint8_t* hits);
RM_DECLARE_KERNEL(CrossEntropyGradient)

}  // namespace ringmaster::engine::kernels
