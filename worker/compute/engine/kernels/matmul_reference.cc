// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/matmul.h"

namespace ringmaster::engine::kernels {

void MatmulReference(const MatmulArgs& p) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.accumulate ? static_cast<double>(p.c[i * p.ldc + j]) : 0.0;
      for (int64_t l = 0; l < p.k; ++l) sum += static_cast<double>(*p.a.At(i, l)) * *p.b.At(l, j);
      p.c[i * p.ldc + j] = static_cast<float>(sum);
    }
}

}  // namespace ringmaster::engine::kernels
