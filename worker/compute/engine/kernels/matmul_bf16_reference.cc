// SPDX-License-Identifier: Apache-2.0

#include <bit>

#include "worker/compute/engine/kernels/matmul_bf16.h"

namespace ringmaster::engine::kernels {

void MatmulBf16Reference(const MatmulBf16Args& p) {
  const auto value = [](const uint16_t* x) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(*x) << 16));
  };
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.accumulate ? static_cast<double>(p.c[i * p.ldc + j]) : 0.0;
      for (int64_t l = 0; l < p.k; ++l) sum += value(p.a.At(i, l)) * value(p.b.At(l, j));
      p.c[i * p.ldc + j] = static_cast<float>(sum);
    }
}

}  // namespace ringmaster::engine::kernels
