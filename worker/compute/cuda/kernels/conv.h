// SPDX-License-Identifier: Apache-2.0

// 3x3 convolution with padding 1 as a matrix product: images, channels last, become a matrix of patches. With
// weights [3, 3, in, out], patches x weights is the output, channels last again. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

struct ImageShape {
  int64_t samples = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

// out[s, y, x, c] = images[s, c, y, x]: from the layout of datasets to ours.
template <class T>
void ChannelsLast(Stream stream, const ImageShape& shape, const float* images, T* out);

// patches[(s * height + y) * width + x, (ky * 3 + kx) * channels + c] = images[s, y + ky - 1, x + kx - 1, c],
// 0 outside.
template <class T>
void Patches(Stream stream, const ImageShape& shape, const T* images, T* patches);

// images = sum over the patches that hold each element, in the order of (ky, kx): the gradient of Patches.
template <class T>
void PatchesBackward(Stream stream, const ImageShape& shape, const T* patches, T* images);

}  // namespace ringmaster::cuda::kernels
