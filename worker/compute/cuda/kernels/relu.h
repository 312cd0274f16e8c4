// SPDX-License-Identifier: Apache-2.0

// ReLU: max(x, 0). The gradient at 0 is 0. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// x = max(x, 0), in place; NaN stays NaN. Shape: x (n).
template <class T>
void ReluForward(Stream stream, int64_t n, T* x);

// d = 0 where y, the output of forward, is not positive. Shape: y, d (n).
template <class T>
void ReluBackward(Stream stream, int64_t n, const T* y, T* d);

}  // namespace ringmaster::cuda::kernels
