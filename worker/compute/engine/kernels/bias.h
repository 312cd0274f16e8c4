// SPDX-License-Identifier: Apache-2.0

// What follows a matrix product, and the gradient of a bias.
#pragma once

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// c[r, i] += bias[i] + residual[r, i]; either may be null. ldc and ldr are the distances between rows.
using AddBiasFn = void(int64_t rows, int64_t columns, float* c, int64_t ldc, const float* bias,
                       const float* residual, int64_t ldr);
RM_DECLARE_KERNEL(AddBias)

// The same from a packed panel: c[r, i] = panel[r, i] + bias[i] + residual[r, i]. `stream` writes past the
// caches: the same values, faster where c is large and not read soon.
using StorePanelFn = void(int64_t rows, int64_t columns, const float* panel, int64_t ldp, const float* bias,
                          const float* residual, int64_t ldr, bool stream, float* c, int64_t ldc);
RM_DECLARE_KERNEL(StorePanel)

// sums[i] = sum over r of x[r, i], rows added in order.
using ColumnSumsFn = void(int64_t rows, int64_t columns, const float* x, int64_t ldx, float* sums);
RM_DECLARE_KERNEL(ColumnSums)

}  // namespace ringmaster::engine::kernels
