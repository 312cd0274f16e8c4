// SPDX-License-Identifier: Apache-2.0

// Building blocks of the float attention kernels. 256 threads form a 16 x 16 grid (tx, ty). A tile of scores
// is square, and each thread holds kPer x kPer of them: rows ty * kPer + i, columns tx + 16 * j. Rows of q,
// k, v are in shared memory as floats with a stride of Tiles::kStride, zero-padded beyond the context and
// the head size. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/attention_head.h"

namespace ringmaster::cuda::kernels {

inline constexpr int kSide = 16;
inline constexpr int kTileThreads = kSide * kSide;

// kHead: the head size rounded up to 16, 32, 64 or 128.
template <int kHead>
struct Tiles {
  static constexpr int kTile = kHead > 64 ? 32 : 64;  // rows of a tile
  static constexpr int kPer = kTile / kSide;
  static constexpr int kColumns = kHead / kSide;  // columns of the head per thread: tx + 16 * j
  static constexpr int kStride =
      kHead + 4;  // of a row; odd in units of 16 bytes, so that rows differ in bank
  static constexpr int kScoreStride = kTile + 4;
  static constexpr int kRows = kTile * kStride;  // floats of a tile
  static constexpr int kScores = kTile * kScoreStride;
};

template <int kHead>
__device__ __forceinline__ void LoadRows(const Head& head, int64_t first, const float* from, int64_t stride,
                                         float* rows) {
  using S = Tiles<kHead>;
  for (int i = static_cast<int>(threadIdx.x); i < S::kTile * kHead; i += kTileThreads) {
    const int row = i / kHead;
    const int column = i % kHead;
    const bool inside = first + row < head.context && column < head.size;
    rows[row * S::kStride + column] = inside ? from[(first + row) * stride + column] : 0.0f;
  }
}

// scores[i][j] = dot product of row ty * kPer + i of `a` and row tx + 16 * j of `b`.
template <int kHead>
__device__ __forceinline__ void RowsByRows(const float* a, const float* b,
                                           float (&scores)[Tiles<kHead>::kPer][Tiles<kHead>::kPer]) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) {
    RM_UNROLL
    for (int j = 0; j < S::kPer; ++j) scores[i][j] = 0;
  }
  for (int d = 0; d < kHead; d += 4) {
    float left[S::kPer][4];
    float right[S::kPer][4];
    RM_UNROLL
    for (int i = 0; i < S::kPer; ++i) Load(a + (ty * S::kPer + i) * S::kStride + d, left[i]);
    RM_UNROLL
    for (int j = 0; j < S::kPer; ++j) Load(b + (tx + kSide * j) * S::kStride + d, right[j]);
    RM_UNROLL
    for (int i = 0; i < S::kPer; ++i) {
      RM_UNROLL
      for (int j = 0; j < S::kPer; ++j) {
        RM_UNROLL
        for (int e = 0; e < 4; ++e) scores[i][j] += left[i][e] * right[j][e];
      }
    }
  }
}

// total[i][j] += sum over c of scores[ty * kPer + i][c] * rows[c][tx + 16 * j].
template <int kHead>
__device__ __forceinline__ void ScoresByRows(const float* scores, const float* rows,
                                             float (&total)[Tiles<kHead>::kPer][Tiles<kHead>::kColumns]) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (int c = 0; c < S::kTile; c += 4) {
    float left[S::kPer][4];
    RM_UNROLL
    for (int i = 0; i < S::kPer; ++i) Load(scores + (ty * S::kPer + i) * S::kScoreStride + c, left[i]);
    RM_UNROLL
    for (int e = 0; e < 4; ++e) {
      RM_UNROLL
      for (int j = 0; j < S::kColumns; ++j) {
        const float right = rows[(c + e) * S::kStride + tx + kSide * j];
        RM_UNROLL
        for (int i = 0; i < S::kPer; ++i) total[i][j] += left[i][e] * right;
      }
    }
  }
}

// total[i][j] += sum over r of scores[r][ty * kPer + i] * rows[r][tx + 16 * j].
template <int kHead>
__device__ __forceinline__ void ScoresTransposedByRows(
    const float* scores, const float* rows, float (&total)[Tiles<kHead>::kPer][Tiles<kHead>::kColumns]) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (int r = 0; r < S::kTile; ++r) {
    float left[S::kPer];
    RM_UNROLL
    for (int i = 0; i < S::kPer; ++i) left[i] = scores[r * S::kScoreStride + ty * S::kPer + i];
    RM_UNROLL
    for (int j = 0; j < S::kColumns; ++j) {
      const float right = rows[r * S::kStride + tx + kSide * j];
      RM_UNROLL
      for (int i = 0; i < S::kPer; ++i) total[i][j] += left[i] * right;
    }
  }
}

// Stores this thread's scores in the tile.
template <int kHead>
__device__ __forceinline__ void StoreScores(const float (&scores)[Tiles<kHead>::kPer][Tiles<kHead>::kPer],
                                            float* tile) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) {
    RM_UNROLL
    for (int j = 0; j < S::kPer; ++j)
      tile[(ty * S::kPer + i) * S::kScoreStride + tx + kSide * j] = scores[i][j];
  }
}

// Stores rows first + ty * kPer + i of the result, each times factor[i].
template <int kHead>
__device__ __forceinline__ void StoreRows(const Head& head, int64_t first,
                                          const float (&total)[Tiles<kHead>::kPer][Tiles<kHead>::kColumns],
                                          const float (&factor)[Tiles<kHead>::kPer], float* to,
                                          int64_t stride) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) {
    const int64_t row = first + ty * S::kPer + i;
    RM_UNROLL
    for (int j = 0; j < S::kColumns; ++j) {
      const int column = tx + kSide * j;
      if (row < head.context && column < head.size) to[row * stride + column] = total[i][j] * factor[i];
    }
  }
}

}  // namespace ringmaster::cuda::kernels
