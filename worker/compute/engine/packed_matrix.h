// SPDX-License-Identifier: Apache-2.0

// How the second operand of a bfloat16 product lies in memory: cut along its depth into slices that fit the
// caches, each slice in strips of 64 columns, in a strip the pairs (k, k + 1) of all its columns together, as
// AMX and AVX512_BF16 load them. oneDNN calls a slice "BA16a64b2a"; it would make the same of plain rows in
// every call. Depth and columns are filled up with zeros. Value type.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/compute/engine/kernels/pack.h"

namespace ringmaster::engine {

struct PackedMatrix {
  static constexpr int64_t kLargestSlice = 1024;

  int64_t depth = 0;    // k of the product
  int64_t columns = 0;  // n of the product

  // Depth of all slices but the last; also how the first operand is cut.
  static int64_t SliceDepth(int64_t depth) {
    const int64_t slices = (depth + kLargestSlice - 1) / kLargestSlice;
    return slices <= 1 ? depth : RoundUp((depth + slices - 1) / slices, kernels::kStripDepth);
  }

  int64_t PaddedColumns() const { return RoundUp(columns, kernels::kStripColumns); }
  int64_t Size() const { return RoundUp(depth, kernels::kStripDepth) * PaddedColumns(); }
  // Elements between strips of the slice that begins at depth `k`.
  int64_t Stride(int64_t k) const {
    return RoundUp(std::min(SliceDepth(depth), depth - k), kernels::kStripDepth) * kernels::kStripColumns;
  }
  // Where the strip of `column` begins in the slice that begins at depth `k`.
  int64_t At(int64_t k, int64_t column) const {
    return k * PaddedColumns() + column / kernels::kStripColumns * Stride(k);
  }

 private:
  static int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
};

}  // namespace ringmaster::engine
