// SPDX-License-Identifier: Apache-2.0

// GELU with the tanh approximation, as in GPT-2: 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
// Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units". T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// x += bias, y = gelu(x). Shape: x, y (rows, columns); bias (columns).
template <class T>
void BiasGeluForward(Stream stream, int64_t rows, int64_t columns, const T* bias, T* x, T* y);

// d *= gelu'(x). Shape: x, d (n).
template <class T>
void GeluBackward(Stream stream, int64_t n, const T* x, T* d);

}  // namespace ringmaster::cuda::kernels
