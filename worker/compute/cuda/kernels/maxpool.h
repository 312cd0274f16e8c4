// SPDX-License-Identifier: Apache-2.0

// Maximum over 2x2 windows, channels last. An odd last row or column belongs to no window. T is float or
// Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/kernels/conv.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// `shape` is of the images; out is [samples, height / 2, width / 2, channels]. winner says which of the
// window's four cells, in reading order, gave the maximum: the first of equals.
template <class T>
void MaxPoolForward(Stream stream, const ImageShape& shape, const T* images, T* out, uint8_t* winner);

// d_images is overwritten: the winners get d_out, all others 0.
template <class T>
void MaxPoolBackward(Stream stream, const ImageShape& shape, const T* d_out, const uint8_t* winner,
                     T* d_images);

}  // namespace ringmaster::cuda::kernels
