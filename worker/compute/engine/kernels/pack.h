// SPDX-License-Identifier: Apache-2.0

// float to bfloat16 (rounded as ToBf16 does, but that numbers below the normal ones may become the zeros as
// which products take them) in the orders in which products take their operands; see packed.h for the strips.
// Each is one pass that reads along the rows in memory.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

inline constexpr int64_t kStripColumns = 64;
inline constexpr int64_t kStripDepth = 32;  // strips are filled with zeros to a multiple of it

// x is [depth, columns] in memory. `strips` lie `stride` elements apart; the columns behind the last one are
// zeros.
using PackRowsFn = void(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                        int64_t stride);
RM_DECLARE_KERNEL(PackRows)

// The same of the transpose: x is [columns, depth] in memory.
using PackColumnsFn = void(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                           int64_t stride);
RM_DECLARE_KERNEL(PackColumns)

// y [columns, rows] is the transpose of x [rows, columns]. Rows of y are filled with zeros to a multiple of
// kStripDepth, for which ldy must leave room.
using TransposeToBf16Fn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y,
                               int64_t ldy);
RM_DECLARE_KERNEL(TransposeToBf16)

}  // namespace ringmaster::engine::kernels
