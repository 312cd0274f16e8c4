// SPDX-License-Identifier: Apache-2.0

// max(x, 0); the gradient at 0 is 0. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// x = max(x, 0) in place; NaN stays.
template <class T>
void ReluForward(Stream stream, int64_t n, T* x);

// d = 0 where y, the forward's result, is 0.
template <class T>
void ReluBackward(Stream stream, int64_t n, const T* y, T* d);

}  // namespace ringmaster::cuda::kernels
