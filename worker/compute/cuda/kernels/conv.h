// SPDX-License-Identifier: Apache-2.0

// 3x3 convolution with padding 1 as a matrix product (im2col): images become a matrix of patches, and
// patches x weights is the output. Shape of the weights: (3, 3, in, out), so (9 * in, out) as a matrix. T is
// float or Bf16.
//
// Shapes: images (B, H, W, C), channels last; patches (B * H * W, 9 * C).
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

struct ImageShape {
  int64_t samples = 0;   // B
  int64_t height = 0;    // H
  int64_t width = 0;     // W
  int64_t channels = 0;  // C
};

// out[s, y, x, c] = images[s, c, y, x]: from the (B, C, H, W) of datasets to channels last.
template <class T>
void ChannelsLast(Stream stream, const ImageShape& shape, const float* images, T* out);

// patches[(s * height + y) * width + x, (ky * 3 + kx) * channels + c] = images[s, y + ky - 1, x + kx - 1, c],
// 0 outside of the image.
template <class T>
void Patches(Stream stream, const ImageShape& shape, const T* images, T* patches);

// The gradient of Patches (col2im): images[s, y, x, c] = sum of its copies in patches, in the order of (ky,
// kx).
template <class T>
void PatchesBackward(Stream stream, const ImageShape& shape, const T* patches, T* images);

}  // namespace ringmaster::cuda::kernels
