// SPDX-License-Identifier: Apache-2.0

// GELU with the tanh approximation, as GPT-2 has it (worker/compute/engine/kernels/gelu.h). T is float or
// Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// x += bias, y = gelu(x), over [rows, columns].
template <class T>
void BiasGeluForward(Stream stream, int64_t rows, int64_t columns, const T* bias, T* x, T* y);

// d *= gelu'(x).
template <class T>
void GeluBackward(Stream stream, int64_t n, const T* x, T* d);

}  // namespace ringmaster::cuda::kernels
