// SPDX-License-Identifier: Apache-2.0

// Maximum over 2x2 windows with stride 2, as torch.nn.MaxPool2d(2). T is float or Bf16.
//
// Shapes: images, d_images (B, H, W, C), channels last, which `shape` describes; out, d_out, winner
// (B, H / 2, W / 2, C). An odd last row or column is in no window.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/kernels/conv.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// winner: the cell of the window that has the maximum, 0 to 3 in row-major order; the first of equal ones.
template <class T>
void MaxPoolForward(Stream stream, const ImageShape& shape, const T* images, T* out, uint8_t* winner);

// Overwrites d_images: the winner of each window gets d_out, all other cells 0.
template <class T>
void MaxPoolBackward(Stream stream, const ImageShape& shape, const T* d_out, const uint8_t* winner,
                     T* d_images);

}  // namespace ringmaster::cuda::kernels
