// SPDX-License-Identifier: Apache-2.0

// float to bfloat16: the upper half of the bits, rounded to nearest even; NaN stays NaN.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// [rows, columns] with distances ldx and ldy between rows.
using ToBf16Fn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy);
RM_DECLARE_KERNEL(ToBf16)

}  // namespace ringmaster::engine::kernels
