// SPDX-License-Identifier: Apache-2.0

// Column sums in a fixed order. A block sums kPartRows rows: its warps take rows in turn, and their sums are
// added in order. Further stages sum the blocks in the same way. Device code and its launches.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"
#include "worker/compute/cuda/launch.h"

namespace ringmaster::cuda::kernels {

inline constexpr int kSumWarps = 8;
inline constexpr int64_t kPartRows = 256;

// sums[part * columns + c] = sum over the rows of part blockIdx.x. Shape: x (rows, columns) with row stride
// `stride`.
template <int kCount, class T>
__global__ void __launch_bounds__(kWarp* kSumWarps)
    ColumnSumsKernel(int64_t rows, int64_t columns, int64_t stride, const T* x, float* sums) {
  constexpr int kColumns = kWarp * kCount;
  RM_SHARED(float, partial, kSumWarps* kColumns);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kColumns + static_cast<int>(threadIdx.x) * kCount;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPartRows;
  const int64_t end = begin + kPartRows < rows ? begin + kPartRows : rows;
  float total[kCount] = {};
  if (column < columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kSumWarps) {
      float v[kCount];
      Load(x + row * stride + column, v);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) total[j] += v[j];
    }
  }
  RM_UNROLL
  for (int j = 0; j < kCount; ++j) partial[(threadIdx.y * kWarp + threadIdx.x) * kCount + j] = total[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); i < kColumns;
       i += kWarp * kSumWarps) {
    const int64_t c = static_cast<int64_t>(blockIdx.y) * kColumns + i;
    if (c >= columns) continue;
    float sum = 0;
    RM_UNROLL
    for (int w = 0; w < kSumWarps; ++w) sum += partial[w * kColumns + i];
    sums[static_cast<int64_t>(blockIdx.x) * columns + c] = sum;
  }
}

// Returns the parts of a stage. They are the x dimension of the grid, which has no practical limit; the y
// dimension allows 65535 * 32 columns.
inline int64_t SumParts(int64_t rows) { return (rows + kPartRows - 1) / kPartRows; }

template <class T>
void LaunchColumnSums(Stream stream, int64_t rows, int64_t columns, int64_t stride, const T* x, float* sums) {
  const dim3 block(kWarp, kSumWarps);
  const auto parts = static_cast<unsigned>(rows == 0 ? 1 : SumParts(rows));  // no rows: sums of zero
  if (Aligned(stride, x) && columns % kPack == 0) {
    Launch(ColumnSumsKernel<kPack, T>, dim3(parts, Cover(columns, kWarp * kPack)), block, 0, stream, rows,
           columns, stride, x, sums);
  } else {
    Launch(ColumnSumsKernel<1, T>, dim3(parts, Cover(columns, kWarp)), block, 0, stream, rows, columns,
           stride, x, sums);
  }
}

// Returns the floats of scratch of SumColumns, which runs stages until one part is left.
inline int64_t SumColumnsScratch(int64_t rows, int64_t columns) {
  int64_t floats = 0;
  for (int64_t parts = SumParts(rows); parts > 1; parts = SumParts(parts)) floats += parts * columns;
  return floats;
}

template <class T>
void SumColumns(Stream stream, int64_t rows, int64_t columns, int64_t stride, const T* x, float* sums,
                float* scratch) {
  const int64_t parts = SumParts(rows);
  if (parts <= 1) {
    LaunchColumnSums(stream, rows, columns, stride, x, sums);
  } else {
    LaunchColumnSums(stream, rows, columns, stride, x, scratch);
    SumColumns(stream, parts, columns, columns, static_cast<const float*>(scratch), sums,
               scratch + parts * columns);
  }
}

}  // namespace ringmaster::cuda::kernels
