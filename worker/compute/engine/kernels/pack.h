// SPDX-License-Identifier: Apache-2.0

// Packing of float matrices into the bfloat16 layouts that matrix products read (packed_matrix.h describes
// the strips). Rounds like ToBf16, except that a subnormal may become a zero, as which products treat it.
// Each kernel makes one pass along the rows in memory.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

inline constexpr int64_t kStripColumns = 64;
inline constexpr int64_t kStripDepth = 32;  // the depth of a strip is zero-padded to a multiple of it

// Packs x, shape (depth, columns) with row stride ldx, into strips that are `stride` elements apart. Columns
// beyond the last one are zero.
using PackRowsFn = void(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                        int64_t stride);
RM_DECLARE_KERNEL(PackRows)

// The same for a transposed matrix: x has shape (columns, depth).
using PackColumnsFn = void(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                           int64_t stride);
RM_DECLARE_KERNEL(PackColumns)

// y = bfloat16 of x transposed. Shape: x (rows, columns), y (columns, rows). Zero-pads the rows of y to a
// multiple of kStripDepth. REQUIRES: ldy has room for the padding.
using TransposeToBf16Fn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y,
                               int64_t ldy);
RM_DECLARE_KERNEL(TransposeToBf16)

}  // namespace ringmaster::engine::kernels
