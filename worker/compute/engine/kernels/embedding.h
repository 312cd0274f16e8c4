// SPDX-License-Identifier: Apache-2.0

// Token and learned position embeddings, as in GPT-2.
//
// Shapes: tokens (rows); table (V, C), the token embedding; positions (T, C); out, d (rows, C). A row is a
// token: row r has position r % T. C is `width`, T is `context`.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// out[r] = table[tokens[r]] + positions[(first_row + r) % T].
using EmbeddingForwardFn = void(int64_t rows, int64_t width, int64_t first_row, int64_t context,
                                const int32_t* tokens, const float* table, const float* positions,
                                float* out);
RM_DECLARE_KERNEL(EmbeddingForward)

// table[tokens[r], c] += d[r, c] for columns c in [begin, end), in the order of rows. Only columns may be
// divided over threads, because the bits depend on the order of the rows.
using EmbeddingBackwardFn = void(int64_t rows, int64_t width, int64_t begin, int64_t end,
                                 const int32_t* tokens, const float* d, float* table);
RM_DECLARE_KERNEL(EmbeddingBackward)

// positions[p] = sum over samples, in order, of d[sample * T + p], for p in [begin, end). d is
// (samples * T, C).
using PositionBackwardFn = void(int64_t samples, int64_t context, int64_t width, int64_t begin, int64_t end,
                                const float* d, float* positions);
RM_DECLARE_KERNEL(PositionBackward)

}  // namespace ringmaster::engine::kernels
