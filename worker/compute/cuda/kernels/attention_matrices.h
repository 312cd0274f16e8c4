// SPDX-License-Identifier: Apache-2.0

// Building blocks of the bfloat16 attention kernels. Four warps each hold kM * 16 rows of scores in
// registers, in the layout of the matrix d in mma.h. Rows of q, k, v and gradients are in shared memory,
// zero-padded beyond the context and the head size. The row stride has padding, so that the rows of an 8 x 8
// matrix are in different banks. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/attention_head.h"
#include "worker/compute/cuda/kernels/mma.h"

namespace ringmaster::cuda::kernels {

inline constexpr int kMatrixWarps = 4;
inline constexpr int kMatrixThreads = kMatrixWarps * kWarp;
inline constexpr int kMatrixRows = 16;  // rows of one matrix of scores

template <int kHead>
inline constexpr int kRowStride = kHead + 8;

// Loads rows [first, first + kRows) of the head. `packs`: copies sixteen bytes at a time.
template <int kHead, int kRows>
__device__ __forceinline__ void LoadTile(const Head& head, int64_t first, const Bf16* from, int64_t stride,
                                         bool packs, Bf16* tile) {
  if (packs) {
    constexpr int kPacks = kHead / kPack;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kMatrixThreads) {
      const int row = i / kPacks;
      const int column = i % kPacks * kPack;
      uint4 v = {};
      if (first + row < head.context && column < head.size) {
        v = *reinterpret_cast<const uint4*>(from + (first + row) * stride + column);
      }
      *reinterpret_cast<uint4*>(tile + row * kRowStride<kHead> + column) = v;
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kHead; i += kMatrixThreads) {
      const int row = i / kHead;
      const int column = i % kHead;
      const bool inside = first + row < head.context && column < head.size;
      tile[row * kRowStride<kHead> + column] = inside ? from[(first + row) * stride + column] : Bf16{0};
    }
  }
}

// scores = the warp's rows at `a` times the transpose of the kN rows at `b`.
template <int kHead, int kM, int kN>
__device__ __forceinline__ void RowsByRows(const Bf16* a, const Bf16* b, float (&scores)[kM][kN / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Bf16* const from_a = a + lane % 16 * kRowStride<kHead> + lane / 16 * 8;
  const Bf16* const from_b = b + (lane / 16 * 8 + lane % 8) * kRowStride<kHead> + lane / 8 % 2 * 8;
  RM_UNROLL
  for (int m = 0; m < kM; ++m) {
    RM_UNROLL
    for (int n = 0; n < kN / 8; ++n) {
      RM_UNROLL
      for (int e = 0; e < 4; ++e) scores[m][n][e] = 0;
    }
  }
  RM_UNROLL
  for (int k = 0; k < kHead; k += 16) {
    uint32_t left[kM][4];
    RM_UNROLL
    for (int m = 0; m < kM; ++m) LoadMatrices(left[m], from_a + m * kMatrixRows * kRowStride<kHead> + k);
    RM_UNROLL
    for (int n = 0; n < kN; n += 16) {
      uint32_t right[4];
      LoadMatrices(right, from_b + n * kRowStride<kHead> + k);
      RM_UNROLL
      for (int m = 0; m < kM; ++m) {
        MultiplyAdd(scores[m][n / 8], left[m], right[0], right[1]);
        MultiplyAdd(scores[m][n / 8 + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// total += scores (rounded to bfloat16) times the kN rows at `b`.
template <int kHead, int kM, int kN>
__device__ __forceinline__ void ScoresByRows(const float (&scores)[kM][kN / 8][4], const Bf16* b,
                                             float (&total)[kM][kHead / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Bf16* const from_b = b + (lane / 8 % 2 * 8 + lane % 8) * kRowStride<kHead> + lane / 16 * 8;
  RM_UNROLL
  for (int k = 0; k < kN; k += 16) {
    uint32_t left[kM][4];
    RM_UNROLL
    for (int m = 0; m < kM; ++m) {
      const auto& near = scores[m][k / 8];
      const auto& far = scores[m][k / 8 + 1];
      left[m][0] = PackBf16(near[0], near[1]);
      left[m][1] = PackBf16(near[2], near[3]);
      left[m][2] = PackBf16(far[0], far[1]);
      left[m][3] = PackBf16(far[2], far[3]);
    }
    RM_UNROLL
    for (int n = 0; n < kHead; n += 16) {
      uint32_t right[4];
      LoadTransposed(right, from_b + k * kRowStride<kHead> + n);
      RM_UNROLL
      for (int m = 0; m < kM; ++m) {
        MultiplyAdd(total[m][n / 8], left[m], right[0], right[1]);
        MultiplyAdd(total[m][n / 8 + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Stores the warp's rows, the first of which is row `first`, each times its factor.
template <int kHead, int kM>
__device__ __forceinline__ void StoreTile(const Head& head, int64_t first,
                                          const float (&total)[kM][kHead / 8][4],
                                          const float (&factor)[kM][2], Bf16* to, int64_t stride,
                                          bool packs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  RM_UNROLL
  for (int m = 0; m < kM; ++m) {
    RM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t row = first + m * kMatrixRows + i * 8 + lane / 4;
      if (row >= head.context) continue;
      RM_UNROLL
      for (int n = 0; n < kHead / 8; ++n) {
        const int column = n * 8 + lane % 4 * 2;
        const float left = total[m][n][2 * i] * factor[m][i];
        const float right = total[m][n][2 * i + 1] * factor[m][i];
        Bf16* const place = to + row * stride + column;
        if (packs && column < head.size) {
          StorePair(place, left, right);
        } else {
          if (column < head.size) place[0] = RoundToBf16(left);
          if (column + 1 < head.size) place[1] = RoundToBf16(right);
        }
      }
    }
  }
}

}  // namespace ringmaster::cuda::kernels
