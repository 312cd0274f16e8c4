// SPDX-License-Identifier: Apache-2.0

// The memory layout of the packed second operand of a bfloat16 product. The depth is divided into slices that
// fit the caches, a slice into strips of 64 columns; a strip holds the pairs (k, k + 1) of all its columns
// together, as AMX and AVX512_BF16 load them. oneDNN calls the layout of a slice "BA16a64b2a" and would
// otherwise convert plain rows to it in every call. Depth and columns are zero-padded. Value type.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/compute/engine/kernels/pack.h"

namespace ringmaster::engine {

struct PackedMatrix {
  static constexpr int64_t kLargestSlice = 1024;

  int64_t depth = 0;    // k of the product, rows of the operand
  int64_t columns = 0;  // n of the product

  // Returns the depth of every slice except the last. The first operand is divided in the same way.
  static int64_t SliceDepth(int64_t depth) {
    const int64_t slices = (depth + kLargestSlice - 1) / kLargestSlice;
    return slices <= 1 ? depth : RoundUp((depth + slices - 1) / slices, kernels::kStripDepth);
  }

  int64_t PaddedColumns() const { return RoundUp(columns, kernels::kStripColumns); }
  int64_t Size() const { return RoundUp(depth, kernels::kStripDepth) * PaddedColumns(); }
  // Returns the elements between strips of the slice that begins at depth `k`.
  int64_t Stride(int64_t k) const {
    return RoundUp(std::min(SliceDepth(depth), depth - k), kernels::kStripDepth) * kernels::kStripColumns;
  }
  // Returns the offset of the strip of `column` in the slice that begins at depth `k`.
  int64_t At(int64_t k, int64_t column) const {
    return k * PaddedColumns() + column / kernels::kStripColumns * Stride(k);
  }

 private:
  static int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
};

}  // namespace ringmaster::engine
