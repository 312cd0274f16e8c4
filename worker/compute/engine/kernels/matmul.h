// SPDX-License-Identifier: Apache-2.0

// Single-precision matrix product C = op(A) op(B), or C += op(A) op(B), row-major, on the calling thread.
//
// The bits are defined, and equal on every CPU: element (i, j) is a function of row i of op(A) and column j
// of op(B) alone. The depth is divided into blocks of kMatmulBlock; each block is one chain of fused
// multiply-adds in ascending order of the depth that starts from +0, and the results of the blocks are added
// in order, the first one to C when C is accumulated. matmul_reference.cc writes this out.
//
// Vectors run along the columns only, so neither the width of a vector, nor the size of a tile, nor packing,
// nor a division of rows or columns among calls or threads changes a bit.
#pragma once

#include <cstdint>

#include "worker/compute/engine/kernels/declare.h"

namespace ringmaster::engine::kernels {

// The depth of a chain. Part of the definition: another value gives other bits.
inline constexpr int64_t kMatmulBlock = 256;

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

// Packed parts of both operands: one block of the depth, kPackedRows rows of A, kPackedColumns columns of B.
inline constexpr int64_t kPackedRows = 256;     // a multiple of the rows of every tile
inline constexpr int64_t kPackedColumns = 768;  // a multiple of the columns of every tile
inline constexpr int64_t kMatmulScratch = (kPackedRows + kPackedColumns) * kMatmulBlock;

// `scratch`: kMatmulScratch floats, best at a multiple of 64 bytes. REQUIRES: C overlaps neither operand.
using MatmulFp32Fn = void(const MatmulArgs& args, float* scratch);
RM_DECLARE_KERNEL(MatmulFp32)

}  // namespace ringmaster::engine::kernels
