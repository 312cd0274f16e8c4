// SPDX-License-Identifier: Apache-2.0

// Token and position embeddings. Rows are tokens; row r stands at position r % context.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// out[r] = table[tokens[r]] + positions[(first_row + r) % context], each of `width` floats.
using EmbeddingForwardFn = void(int64_t rows, int64_t width, int64_t first_row, int64_t context,
                                const int32_t* tokens, const float* table, const float* positions,
                                float* out);
RM_DECLARE_KERNEL(EmbeddingForward)

// table[tokens[r]] += d[r] for columns [begin, end), rows in order: the order is what makes the sum exact to
// repeat, so only columns may be cut.
using EmbeddingBackwardFn = void(int64_t rows, int64_t width, int64_t begin, int64_t end,
                                 const int32_t* tokens, const float* d, float* table);
RM_DECLARE_KERNEL(EmbeddingBackward)

// positions[p] = sum over samples, in order, of d[sample * context + p], for p in [begin, end).
using PositionBackwardFn = void(int64_t samples, int64_t context, int64_t width, int64_t begin, int64_t end,
                                const float* d, float* positions);
RM_DECLARE_KERNEL(PositionBackward)

}  // namespace ringmaster::engine::kernels
