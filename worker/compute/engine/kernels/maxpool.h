// SPDX-License-Identifier: Apache-2.0

// Maximum over 2x2 windows with stride 2 of one image, as torch.nn.MaxPool2d(2).
//
// Shapes: image, d_image (H, W, C), channels last; out, d_out, winner (H / 2, W / 2, C). An odd last row or
// column is in no window.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// winner: the cell of the window that has the maximum, 0 to 3 in row-major order; the first of equal ones.
using MaxPoolForwardFn = void(int64_t height, int64_t width, int64_t channels, const float* image, float* out,
                              uint8_t* winner);
RM_DECLARE_KERNEL(MaxPoolForward)

// Overwrites d_image: the winner of each window gets d_out, all other cells 0.
using MaxPoolBackwardFn = void(int64_t height, int64_t width, int64_t channels, const float* d_out,
                               const uint8_t* winner, float* d_image);
RM_DECLARE_KERNEL(MaxPoolBackward)

}  // namespace ringmaster::engine::kernels
