// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>

#include "worker/compute/engine/kernels/matmul.h"

namespace ringmaster::engine::kernels::reference {

void MatmulFp32(const MatmulArgs& p, float*) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      float& c = p.c[i * p.ldc + j];
      if (p.k == 0 && !p.accumulate) c = 0;
      for (int64_t block = 0; block < p.k; block += kMatmulBlock) {
        float sum = 0;
        for (int64_t l = block; l < std::min(p.k, block + kMatmulBlock); ++l)
          sum = std::fma(*p.a.At(i, l), *p.b.At(l, j), sum);
        c = block == 0 && !p.accumulate ? sum : c + sum;
      }
    }
}

}  // namespace ringmaster::engine::kernels::reference
