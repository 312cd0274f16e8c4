// SPDX-License-Identifier: Apache-2.0

// The epilogue of a matrix product, and the gradient of a bias: for y = x W + b, db is the sum of dy over
// rows.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// c[r, i] += bias[i] + residual[r, i]; bias and residual may be null.
// Shape: c, residual (rows, columns) with row strides ldc and ldr; bias (columns).
using AddBiasFn = void(int64_t rows, int64_t columns, float* c, int64_t ldc, const float* bias,
                       const float* residual, int64_t ldr);
RM_DECLARE_KERNEL(AddBias)

// c[r, i] = panel[r, i] + bias[i] + residual[r, i]; bias and residual may be null. `stream` uses non-temporal
// stores: the same values, faster where c is large and not read soon.
// Shape: panel, residual, c (rows, columns) with row strides ldp, ldr and ldc; bias (columns).
using StorePanelFn = void(int64_t rows, int64_t columns, const float* panel, int64_t ldp, const float* bias,
                          const float* residual, int64_t ldr, bool stream, float* c, int64_t ldc);
RM_DECLARE_KERNEL(StorePanel)

// sums[i] = sum over r of x[r, i], in the order of rows. Shape: x (rows, columns) with row stride ldx; sums
// (columns).
using ColumnSumsFn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, float* sums);
RM_DECLARE_KERNEL(ColumnSums)

}  // namespace ringmaster::engine::kernels
