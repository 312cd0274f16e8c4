// SPDX-License-Identifier: Apache-2.0

// Loops of elementwise kernels. `Fn` is a functor struct with
//
//   template <int kCount> __device__ void At(int64_t i) const     computes elements [i, i + kCount)
//
// For ForRows, Fn also has Column(int64_t column), which returns the values that all rows of these columns
// share; At takes them as its second argument. Device code and its launches.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"
#include "worker/compute/cuda/launch.h"

namespace ringmaster::cuda::kernels {

inline constexpr int kElementThreads = 256;

template <int kCount, class Fn>
__global__ void ElementsKernel(int64_t n, Fn fn) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x) * kCount;
  if (i + kCount <= n) {
    fn.template At<kCount>(i);
  } else {
    for (; i < n; ++i) fn.template At<1>(i);
  }
}

// Runs fn over n elements, kPack at a time when `aligned`.
template <class Fn>
void ForElements(Stream stream, int64_t n, bool aligned, const Fn& fn) {
  if (aligned) {
    Launch(ElementsKernel<kPack, Fn>, Cover(n, kElementThreads * kPack), kElementThreads, 0, stream, n, fn);
  } else {
    Launch(ElementsKernel<1, Fn>, Cover(n, kElementThreads), kElementThreads, 0, stream, n, fn);
  }
}

inline constexpr int kRowWarps = 8;
inline constexpr int64_t kRowsPerWarp = 4;

template <int kCount, class Fn>
__global__ void RowsKernel(int64_t rows, int64_t columns, Fn fn) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * kCount;
  if (column >= columns) return;
  const auto shared = fn.template Column<kCount>(column);
  const int64_t step = static_cast<int64_t>(gridDim.y) * kRowWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kRowWarps + threadIdx.y; row < rows; row += step) {
    fn.template At<kCount>(row * columns + column, shared);
  }
}

// Runs fn over a matrix of shape (rows, columns), kPack columns at a time when `aligned`.
template <class Fn>
void ForRows(Stream stream, int64_t rows, int64_t columns, bool aligned, const Fn& fn) {
  const int64_t tall = (rows + kRowWarps * kRowsPerWarp - 1) / (kRowWarps * kRowsPerWarp);
  const auto y = static_cast<unsigned>(tall < 65535 ? tall : 65535);
  const dim3 block(kWarp, kRowWarps);
  if (aligned) {
    Launch(RowsKernel<kPack, Fn>, dim3(Cover(columns, kWarp * kPack), y), block, 0, stream, rows, columns,
           fn);
  } else {
    Launch(RowsKernel<1, Fn>, dim3(Cover(columns, kWarp), y), block, 0, stream, rows, columns, fn);
  }
}

}  // namespace ringmaster::cuda::kernels
