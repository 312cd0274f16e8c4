// SPDX-License-Identifier: Apache-2.0

// C = op(A) op(B), optionally added to C, by oneDNN on the calling thread alone: equal operands give equal
// bits whatever the alignment and whatever ran before. Row-major throughout.
#pragma once

#include <cstdint>

namespace ringmaster::engine::kernels {

// A row-major matrix as it lies in memory; `transposed` means that its transpose takes part.
struct Matrix {
  const float* data = nullptr;
  int64_t ld = 0;  // elements between rows in memory
  bool transposed = false;
  // First element of row r, column c of op(M).
  const float* At(int64_t r, int64_t c) const { return data + (transposed ? c * ld + r : r * ld + c); }
};

struct MatmulArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Matrix a;  // op(A) is [m, k]
  Matrix b;  // op(B) is [k, n]
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
};

void Matmul(const MatmulArgs& product);
void MatmulReference(const MatmulArgs& product);

}  // namespace ringmaster::engine::kernels
