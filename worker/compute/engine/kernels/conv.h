// SPDX-License-Identifier: Apache-2.0

// 3x3 convolution with padding 1 as a matrix product (im2col): one image becomes a matrix of patches, and
// patches x weights is the output. Shape of the weights: (3, 3, in, out), so (9 * in, out) as a matrix.
//
// Shapes: image (H, W, C), channels last; patches (H * W, 9 * C). H is `height`, W `width`, C `channels`.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// patches[y * W + x, (ky * 3 + kx) * C + c] = image[y + ky - 1, x + kx - 1, c], 0 outside of the image.
using PatchesFn = void(int64_t height, int64_t width, int64_t channels, const float* image, float* patches);
RM_DECLARE_KERNEL(Patches)

// The gradient of Patches (col2im): image[y, x, c] = sum of its copies in patches, in the order of (ky, kx).
using PatchesBackwardFn = void(int64_t height, int64_t width, int64_t channels, const float* patches,
                               float* image);
RM_DECLARE_KERNEL(PatchesBackward)

}  // namespace ringmaster::engine::kernels
