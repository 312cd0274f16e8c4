// SPDX-License-Identifier: Apache-2.0

// Conversion from float to bfloat16, the upper half of the bits: rounds to nearest even; NaN stays NaN.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// y = bfloat16(x). Shape: x, y (rows, columns) with row strides ldx and ldy.
using ToBf16Fn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy);
RM_DECLARE_KERNEL(ToBf16)

}  // namespace ringmaster::engine::kernels
