// SPDX-License-Identifier: Apache-2.0

// 3x3 convolution with padding 1 as a matrix product: one image, channels last, becomes a matrix of patches.
// With weights [3, 3, in, out], patches x weights is the output, channels last again.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// patches[y * width + x, (ky * 3 + kx) * channels + c] = image[y + ky - 1, x + kx - 1, c], 0 outside.
using PatchesFn = void(int64_t height, int64_t width, int64_t channels, const float* image, float* patches);
RM_DECLARE_KERNEL(Patches)

// image = sum over the patches that hold each element, in the order of (ky, kx): the gradient of the above.
using PatchesBackwardFn = void(int64_t height, int64_t width, int64_t channels, const float* patches,
                               float* image);
RM_DECLARE_KERNEL(PatchesBackward)

}  // namespace ringmaster::engine::kernels
