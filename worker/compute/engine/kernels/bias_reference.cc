// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/bias.h"

namespace ringmaster::engine::kernels::reference {

void AddBias(int64_t rows, int64_t columns, float* c, int64_t ldc, const float* bias, const float* residual,
             int64_t ldr) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      if (bias != nullptr) c[r * ldc + i] += bias[i];
      if (residual != nullptr) c[r * ldc + i] += residual[r * ldr + i];
    }
}

void StorePanel(int64_t rows, int64_t columns, const float* panel, int64_t ldp, const float* bias,
                const float* residual, int64_t ldr, bool /*stream*/, float* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      float sum = panel[r * ldp + i];
      if (bias != nullptr) sum += bias[i];
      if (residual != nullptr) sum += residual[r * ldr + i];
      c[r * ldc + i] = sum;
    }
}

void ColumnSums(int64_t rows, int64_t columns, const float* x, int64_t ldx, float* sums) {
  for (int64_t i = 0; i < columns; ++i) {
    float total = 0;
    for (int64_t r = 0; r < rows; ++r) total += x[r * ldx + i];
    sums[i] = total;
  }
}

}  // namespace ringmaster::engine::kernels::reference
