// SPDX-License-Identifier: Apache-2.0

// Attention for float. Uses no tensor cores, because they would round the operands.
#include "worker/compute/cuda/kernels/attention.h"

#include "worker/compute/cuda/kernels/attention_tiles.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr float kMasked = -3.4e38f;

template <int kHead>
__global__ void __launch_bounds__(kTileThreads)
    AttentionForwardKernel(AttentionShape shape, const float* qkv, float* out, float* lse) {
  using S = Tiles<kHead>;
  RM_DYNAMIC_SHARED(float, shared);
  float* const q = shared;
  float* const kv = q + S::kRows;
  float* const tile = kv + S::kRows;
  const Head head = HeadOfBlock(shape);
  const float* const from = qkv + head.q;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const int64_t queries = QueryTile() * S::kTile;
  float total[S::kPer][S::kColumns] = {};
  float top[S::kPer];
  float sum[S::kPer] = {};  // over this thread's columns
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) top[i] = kMasked;
  LoadRows<kHead>(head, queries, from, head.stride, q);
  for (int64_t keys = 0; keys <= queries; keys += S::kTile) {
    __syncthreads();  // q is loaded; the values of the previous tile are no longer read
    LoadRows<kHead>(head, keys, from + head.width, head.stride, kv);
    __syncthreads();
    float scores[S::kPer][S::kPer];
    RowsByRows<kHead>(q, kv, scores);
    RM_UNROLL
    for (int i = 0; i < S::kPer; ++i) {
      const int64_t query = queries + ty * S::kPer + i;
      float most = top[i];
      RM_UNROLL
      for (int j = 0; j < S::kPer; ++j) {
        const int64_t key = keys + tx + kSide * j;
        scores[i][j] = key <= query && query < head.context ? scores[i][j] * head.scale : kMasked;
        most = scores[i][j] > most ? scores[i][j] : most;
      }
      RM_UNROLL
      for (int step = kSide / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, most, step);
        most = other > most ? other : most;
      }
      const float shrink = expf(top[i] - most);
      top[i] = most;
      sum[i] *= shrink;
      RM_UNROLL
      for (int j = 0; j < S::kPer; ++j) {
        scores[i][j] = scores[i][j] == kMasked ? 0.0f : expf(scores[i][j] - most);
        sum[i] += scores[i][j];
      }
      RM_UNROLL
      for (int j = 0; j < S::kColumns; ++j) total[i][j] *= shrink;
    }
    StoreScores<kHead>(scores, tile);
    __syncthreads();  // the keys are no longer read; the scores are stored
    LoadRows<kHead>(head, keys, from + 2 * head.width, head.stride, kv);
    __syncthreads();
    ScoresByRows<kHead>(tile, kv, total);
  }
  float factor[S::kPer];
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) {
    RM_UNROLL
    for (int step = kSide / 2; step > 0; step /= 2) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], step);
    factor[i] = 1.0f / sum[i];
    const int64_t query = queries + ty * S::kPer + i;
    if (tx == 0 && query < head.context) lse[head.statistics + query] = top[i] + logf(sum[i]);
  }
  StoreRows<kHead>(head, queries, total, factor, out + head.out, head.out_stride);
}

// Recomputes the probabilities p of a tile, and computes the gradient of its unscaled scores:
// d = p * (d_out . v - delta) * scale. Queries are rows, keys columns.
template <int kHead>
__device__ __forceinline__ void ScoreGradients(const Head& head, int64_t queries, int64_t keys,
                                               const float* q, const float* k, const float* v,
                                               const float* d_out, const float* lse, const float* delta,
                                               float (&p)[Tiles<kHead>::kPer][Tiles<kHead>::kPer],
                                               float (&d)[Tiles<kHead>::kPer][Tiles<kHead>::kPer]) {
  using S = Tiles<kHead>;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  RowsByRows<kHead>(q, k, p);
  RowsByRows<kHead>(d_out, v, d);
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) {
    const int64_t query = queries + ty * S::kPer + i;
    const bool inside = query < head.context;
    const float row_lse = inside ? lse[head.statistics + query] : 0.0f;
    const float row_delta = inside ? delta[head.statistics + query] : 0.0f;
    RM_UNROLL
    for (int j = 0; j < S::kPer; ++j) {
      const int64_t key = keys + tx + kSide * j;
      p[i][j] = inside && key <= query ? expf(p[i][j] * head.scale - row_lse) : 0.0f;
      d[i][j] = p[i][j] * (d[i][j] - row_delta) * head.scale;
    }
  }
}

// A block owns a tile of keys and loops over the query tiles that see it.
template <int kHead>
__global__ void __launch_bounds__(kTileThreads)
    AttentionKeysBackwardKernel(AttentionShape shape, const float* qkv, const float* d_out, const float* lse,
                                const float* delta, float* d_qkv) {
  using S = Tiles<kHead>;
  RM_DYNAMIC_SHARED(float, shared);
  float* const q = shared;
  float* const k = q + S::kRows;
  float* const v = k + S::kRows;
  float* const d = v + S::kRows;
  float* const tile = d + S::kRows;
  const Head head = HeadOfBlock(shape);
  const int64_t keys = static_cast<int64_t>(blockIdx.x) * S::kTile;
  float d_k[S::kPer][S::kColumns] = {};
  float d_v[S::kPer][S::kColumns] = {};
  LoadRows<kHead>(head, keys, qkv + head.q + head.width, head.stride, k);
  LoadRows<kHead>(head, keys, qkv + head.q + 2 * head.width, head.stride, v);
  for (int64_t queries = keys; queries < head.context; queries += S::kTile) {
    __syncthreads();  // k and v are loaded; the data of the previous queries is no longer read
    LoadRows<kHead>(head, queries, qkv + head.q, head.stride, q);
    LoadRows<kHead>(head, queries, d_out + head.out, head.out_stride, d);
    __syncthreads();
    float p[S::kPer][S::kPer];
    float gradients[S::kPer][S::kPer];
    ScoreGradients<kHead>(head, queries, keys, q, k, v, d, lse, delta, p, gradients);
    StoreScores<kHead>(p, tile);
    __syncthreads();
    ScoresTransposedByRows<kHead>(tile, d, d_v);
    __syncthreads();
    StoreScores<kHead>(gradients, tile);
    __syncthreads();
    ScoresTransposedByRows<kHead>(tile, q, d_k);
  }
  float one[S::kPer];
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) one[i] = 1.0f;
  StoreRows<kHead>(head, keys, d_k, one, d_qkv + head.q + head.width, head.stride);
  StoreRows<kHead>(head, keys, d_v, one, d_qkv + head.q + 2 * head.width, head.stride);
}

// A block owns a tile of queries and loops over the keys that they see.
template <int kHead>
__global__ void __launch_bounds__(kTileThreads)
    AttentionQueriesBackwardKernel(AttentionShape shape, const float* qkv, const float* d_out,
                                   const float* lse, const float* delta, float* d_qkv) {
  using S = Tiles<kHead>;
  RM_DYNAMIC_SHARED(float, shared);
  float* const q = shared;
  float* const k = q + S::kRows;
  float* const v = k + S::kRows;
  float* const d = v + S::kRows;
  float* const tile = d + S::kRows;
  const Head head = HeadOfBlock(shape);
  const int64_t queries = QueryTile() * S::kTile;
  float d_q[S::kPer][S::kColumns] = {};
  LoadRows<kHead>(head, queries, qkv + head.q, head.stride, q);
  LoadRows<kHead>(head, queries, d_out + head.out, head.out_stride, d);
  for (int64_t keys = 0; keys <= queries; keys += S::kTile) {
    __syncthreads();
    LoadRows<kHead>(head, keys, qkv + head.q + head.width, head.stride, k);
    LoadRows<kHead>(head, keys, qkv + head.q + 2 * head.width, head.stride, v);
    __syncthreads();
    float p[S::kPer][S::kPer];
    float gradients[S::kPer][S::kPer];
    ScoreGradients<kHead>(head, queries, keys, q, k, v, d, lse, delta, p, gradients);
    StoreScores<kHead>(gradients, tile);
    __syncthreads();
    ScoresByRows<kHead>(tile, k, d_q);
  }
  float one[S::kPer];
  RM_UNROLL
  for (int i = 0; i < S::kPer; ++i) one[i] = 1.0f;
  StoreRows<kHead>(head, queries, d_q, one, d_qkv + head.q, head.stride);
}

template <int kHead>
void ForwardOf(Stream stream, const AttentionShape& shape, const float* qkv, float* out, float* lse) {
  using S = Tiles<kHead>;
  Launch(AttentionForwardKernel<kHead>, HeadGrid(shape, S::kTile), kTileThreads,
         (2 * S::kRows + S::kScores) * sizeof(float), stream, shape, qkv, out, lse);
}

template <int kHead>
void BackwardOf(Stream stream, const AttentionShape& shape, const float* qkv, const float* d_out,
                const float* lse, const float* delta, float* d_qkv) {
  using S = Tiles<kHead>;
  constexpr size_t kShared = (4 * S::kRows + S::kScores) * sizeof(float);
  Launch(AttentionKeysBackwardKernel<kHead>, HeadGrid(shape, S::kTile), kTileThreads, kShared, stream, shape,
         qkv, d_out, lse, delta, d_qkv);
  Launch(AttentionQueriesBackwardKernel<kHead>, HeadGrid(shape, S::kTile), kTileThreads, kShared, stream,
         shape, qkv, d_out, lse, delta, d_qkv);
}

}  // namespace

template <>
void AttentionForward(Stream stream, const AttentionShape& shape, const float* qkv, float* out, float* lse) {
  if (shape.head_size <= 16) return ForwardOf<16>(stream, shape, qkv, out, lse);
  if (shape.head_size <= 32) return ForwardOf<32>(stream, shape, qkv, out, lse);
  if (shape.head_size <= 64) return ForwardOf<64>(stream, shape, qkv, out, lse);
  ForwardOf<kLargestHead>(stream, shape, qkv, out, lse);
}

int64_t AttentionBackwardScratch(const AttentionShape& shape) {
  return shape.samples * shape.heads * shape.context;
}

template <>
void AttentionBackward(Stream stream, const AttentionShape& shape, const float* qkv, const float* out,
                       const float* d_out, const float* lse, float* d_qkv, float* scratch) {
  AttentionDelta(stream, shape, out, d_out, scratch);
  const float* const delta = scratch;
  if (shape.head_size <= 16) return BackwardOf<16>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  if (shape.head_size <= 32) return BackwardOf<32>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  if (shape.head_size <= 64) return BackwardOf<64>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  BackwardOf<kLargestHead>(stream, shape, qkv, d_out, lse, delta, d_qkv);
}

}  // namespace ringmaster::cuda::kernels
