// SPDX-License-Identifier: Apache-2.0

// Maximum over 2x2 windows of one image, channels last. An odd last row or column belongs to no window.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// out is [height / 2, width / 2, channels]; winner says which of the window's four cells, in reading order,
// gave the maximum: the first of equals.
using MaxPoolForwardFn = void(int64_t height, int64_t width, int64_t channels, const float* image, float* out,
                              uint8_t* winner);
RM_DECLARE_KERNEL(MaxPoolForward)

// d_image is overwritten: the winners get d_out, all others 0.
using MaxPoolBackwardFn = void(int64_t height, int64_t width, int64_t channels, const float* d_out,
                               const uint8_t* winner, float* d_image);
RM_DECLARE_KERNEL(MaxPoolBackward)

}  // namespace ringmaster::engine::kernels
