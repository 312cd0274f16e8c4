// SPDX-License-Identifier: Apache-2.0

// The gradient of a bias: for y = x W + b, db is the sum of dy over rows. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// sums[i] = sum over r of x[r, i]. Shape: x (rows, columns); sums (columns). Adds in stages whose order
// depends on the shape only. `scratch` holds ColumnSumsScratch floats.
int64_t ColumnSumsScratch(int64_t rows, int64_t columns);
template <class T>
void ColumnSums(Stream stream, int64_t rows, int64_t columns, const T* x, float* sums, float* scratch);

}  // namespace ringmaster::cuda::kernels
