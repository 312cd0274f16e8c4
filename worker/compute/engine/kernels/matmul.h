// SPDX-License-Identifier: Apache-2.0

// Single-precision matrix product C = op(A) op(B), or C += op(A) op(B), row-major, by oneDNN on the calling
// thread. Equal operands give equal bits, independent of alignment and of earlier calls.
#pragma once

#include <cstdint>

namespace ringmaster::engine::kernels {

// A row-major matrix in memory; op(M) is its transpose when `transposed` is set.
struct Matrix {
  const float* data = nullptr;
  int64_t ld = 0;  // row stride in elements
  bool transposed = false;
  // Returns the element at row r, column c of op(M).
  const float* At(int64_t r, int64_t c) const { return data + (transposed ? c * ld + r : r * ld + c); }
};

struct MatmulArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Matrix a;            // op(A): (m, k)
  Matrix b;            // op(B): (k, n)
  float* c = nullptr;  // (m, n)
  int64_t ldc = 0;
  bool accumulate = false;
};

void Matmul(const MatmulArgs& args);
void MatmulReference(const MatmulArgs& args);

}  // namespace ringmaster::engine::kernels
