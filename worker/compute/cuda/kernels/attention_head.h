// SPDX-License-Identifier: Apache-2.0

// The head that a block of the attention kernels computes, and the first step of backward. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/attention.h"
#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"

namespace ringmaster::cuda::kernels {

// One head of one sample, as offsets into qkv, out and lse. The grid is (tiles, heads, samples).
struct Head {
  int64_t context;
  int size;
  int64_t stride;  // between rows of q, k or v
  int64_t out_stride;
  int64_t q;  // k is at q + width, v at q + 2 * width
  int64_t width;
  int64_t out;
  int64_t statistics;
  float scale;
};

__device__ __forceinline__ Head HeadOfBlock(const AttentionShape& shape) {
  const int64_t width = shape.heads * shape.head_size;
  const auto sample = static_cast<int64_t>(blockIdx.z);
  const auto head = static_cast<int64_t>(blockIdx.y);
  const int64_t row = sample * shape.context;
  return {shape.context,
          static_cast<int>(shape.head_size),
          3 * width,
          width,
          row * 3 * width + head * shape.head_size,
          width,
          row * width + head * shape.head_size,
          (sample * shape.heads + head) * shape.context,
          1.0f / sqrtf(static_cast<float>(shape.head_size))};
}

// Returns the query tile of the block. The tiles with the most work run first: the last one sees every key.
__device__ __forceinline__ int64_t QueryTile() { return static_cast<int64_t>(gridDim.x - 1 - blockIdx.x); }

inline dim3 HeadGrid(const AttentionShape& shape, int64_t tile) {
  return {Cover(shape.context, tile), static_cast<unsigned>(shape.heads),
          static_cast<unsigned>(shape.samples)};
}

inline constexpr int kDeltaWarps = 8;

// delta (B, H, T) = out . d_out per row and head, which equals the sum over keys of probability times its
// gradient.
template <class T>
__global__ void AttentionDeltaKernel(AttentionShape shape, const T* out, const T* d_out, float* delta) {
  const int64_t query = static_cast<int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.y;
  if (query >= shape.context) return;
  const Head head = HeadOfBlock(shape);
  const int64_t row = head.out + query * head.out_stride;
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < head.size; c += kWarp) {
    sum += ToFloat(out[row + c]) * ToFloat(d_out[row + c]);
  }
  sum = WarpSum(sum);
  if (threadIdx.x == 0) delta[head.statistics + query] = sum;
}

template <class T>
void AttentionDelta(Stream stream, const AttentionShape& shape, const T* out, const T* d_out, float* delta) {
  Launch(AttentionDeltaKernel<T>, HeadGrid(shape, kDeltaWarps), dim3(kWarp, kDeltaWarps), 0, stream, shape,
         out, d_out, delta);
}

}  // namespace ringmaster::cuda::kernels
