// SPDX-License-Identifier: Apache-2.0

// Attention for bfloat16 on tensor cores. Scores never leave registers: the layout in which a product leaves
// the scores of a warp is the layout in which the next product reads them.
#include "worker/compute/cuda/kernels/attention.h"
#include "worker/compute/cuda/kernels/attention_head.h"
#include "worker/compute/cuda/kernels/attention_matrices.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr float kLn2 = 0.69314718f;
constexpr float kMaskedScore = -3.4e38f;

// Rows per warp and tile sizes, chosen to fit the registers.
template <int kHead>
struct MatrixTiles {
  static constexpr int kM = kHead > 64 ? 1 : 2;                     // forward
  static constexpr int kQueries = kMatrixWarps * kMatrixRows * kM;  // forward
  static constexpr int kKeys = 64;                                  // forward
  static constexpr int kOwn = kMatrixWarps * kMatrixRows;           // backward: rows of a block
  static constexpr int kOther = kHead > 64 ? 32 : 64;               // backward: rows of one iteration
  static constexpr size_t kForwardBytes = (kQueries + 2 * kKeys) * kRowStride<kHead> * sizeof(Bf16);
  static constexpr size_t kBackwardBytes = 2 * (kOwn + kOther) * kRowStride<kHead> * sizeof(Bf16);
};

template <int kHead>
__global__ void __launch_bounds__(kMatrixThreads)
    AttentionForwardBf16Kernel(AttentionShape shape, bool packs, const Bf16* qkv, Bf16* out, float* lse) {
  using S = MatrixTiles<kHead>;
  constexpr int kM = S::kM;
  RM_DYNAMIC_SHARED(Bf16, shared);
  Bf16* const q = shared;
  Bf16* const k = q + S::kQueries * kRowStride<kHead>;
  Bf16* const v = k + S::kKeys * kRowStride<kHead>;
  const Head head = HeadOfBlock(shape);
  const Bf16* const from = qkv + head.q;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t queries = QueryTile() * S::kQueries;
  const int64_t mine = queries + warp * kMatrixRows * kM;
  const int64_t keys_end = queries + S::kQueries < head.context ? queries + S::kQueries : head.context;
  const float scale = head.scale * kLog2e;
  float total[kM][kHead / 8][4] = {};
  float top[kM][2];
  float sum[kM][2] = {};  // over this lane's columns
  RM_UNROLL
  for (int m = 0; m < kM; ++m) top[m][0] = top[m][1] = kMaskedScore;
  LoadTile<kHead, S::kQueries>(head, queries, from, head.stride, packs, q);
  for (int64_t keys = 0; keys < keys_end; keys += S::kKeys) {
    __syncthreads();  // the previous keys and values are no longer read
    LoadTile<kHead, S::kKeys>(head, keys, from + head.width, head.stride, packs, k);
    LoadTile<kHead, S::kKeys>(head, keys, from + 2 * head.width, head.stride, packs, v);
    __syncthreads();
    if (keys >= mine + kMatrixRows * kM) continue;  // no row of the warp sees these keys
    float scores[kM][S::kKeys / 8][4];
    RowsByRows<kHead, kM, S::kKeys>(q + warp * kMatrixRows * kM * kRowStride<kHead>, k, scores);
    RM_UNROLL
    for (int m = 0; m < kM; ++m) {
      RM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int64_t query = mine + m * kMatrixRows + i * 8 + lane / 4;
        float most = top[m][i];
        RM_UNROLL
        for (int n = 0; n < S::kKeys / 8; ++n) {
          RM_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = scores[m][n][2 * i + e];
            const int64_t key = keys + n * 8 + lane % 4 * 2 + e;
            score = key <= query ? score * scale : kMaskedScore;
            most = score > most ? score : most;
          }
        }
        RM_UNROLL
        for (int step = 2; step > 0; step /= 2) {
          const float other = __shfl_xor_sync(kAllLanes, most, step);
          most = other > most ? other : most;
        }
        // Every row sees key 0, which is in the first tile, so `most` is a score from the first tile on.
        const float shrink = exp2f(top[m][i] - most);
        top[m][i] = most;
        sum[m][i] *= shrink;
        RM_UNROLL
        for (int n = 0; n < S::kKeys / 8; ++n) {
          RM_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = scores[m][n][2 * i + e];
            score = exp2f(score - most);
            sum[m][i] += score;
          }
        }
        RM_UNROLL
        for (int n = 0; n < kHead / 8; ++n) {
          total[m][n][2 * i] *= shrink;
          total[m][n][2 * i + 1] *= shrink;
        }
      }
    }
    ScoresByRows<kHead, kM, S::kKeys>(scores, v, total);
  }
  float factor[kM][2];
  RM_UNROLL
  for (int m = 0; m < kM; ++m) {
    RM_UNROLL
    for (int i = 0; i < 2; ++i) {
      RM_UNROLL
      for (int step = 2; step > 0; step /= 2) sum[m][i] += __shfl_xor_sync(kAllLanes, sum[m][i], step);
      factor[m][i] = 1.0f / sum[m][i];
      const int64_t query = mine + m * kMatrixRows + i * 8 + lane / 4;
      if (lane % 4 == 0 && query < head.context) {
        lse[head.statistics + query] = top[m][i] * kLn2 + logf(sum[m][i]);
      }
    }
  }
  StoreTile<kHead, kM>(head, mine, total, factor, out + head.out, head.out_stride, packs);
}

// A block owns a tile of keys, 16 per warp as rows of the scores, and loops over the query tiles that see
// it. Queries beyond the context are zeros and add zeros.
template <int kHead>
__global__ void __launch_bounds__(kMatrixThreads)
    AttentionKeysBackwardBf16Kernel(AttentionShape shape, bool packs, const Bf16* qkv, const Bf16* d_out,
                                    const float* lse, const float* delta, Bf16* d_qkv) {
  using S = MatrixTiles<kHead>;
  RM_DYNAMIC_SHARED(Bf16, shared);
  RM_SHARED(float, row_lse, S::kOther);
  RM_SHARED(float, row_delta, S::kOther);
  Bf16* const k = shared;
  Bf16* const v = k + S::kOwn * kRowStride<kHead>;
  Bf16* const q = v + S::kOwn * kRowStride<kHead>;
  Bf16* const d = q + S::kOther * kRowStride<kHead>;
  const Head head = HeadOfBlock(shape);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t keys = static_cast<int64_t>(blockIdx.x) * S::kOwn;
  const int64_t mine = keys + warp * kMatrixRows;
  const int row = warp * kMatrixRows * kRowStride<kHead>;
  float d_k[1][kHead / 8][4] = {};
  float d_v[1][kHead / 8][4] = {};
  LoadTile<kHead, S::kOwn>(head, keys, qkv + head.q + head.width, head.stride, packs, k);
  LoadTile<kHead, S::kOwn>(head, keys, qkv + head.q + 2 * head.width, head.stride, packs, v);
  for (int64_t queries = keys; queries < head.context; queries += S::kOther) {
    __syncthreads();  // the previous queries are no longer read
    LoadTile<kHead, S::kOther>(head, queries, qkv + head.q, head.stride, packs, q);
    LoadTile<kHead, S::kOther>(head, queries, d_out + head.out, head.out_stride, packs, d);
    for (int i = static_cast<int>(threadIdx.x); i < S::kOther; i += kMatrixThreads) {
      const bool inside = queries + i < head.context;
      row_lse[i] = inside ? lse[head.statistics + queries + i] * kLog2e : 0.0f;
      row_delta[i] = inside ? delta[head.statistics + queries + i] : 0.0f;
    }
    __syncthreads();
    if (queries + S::kOther <= mine) continue;  // these queries see none of the warp's keys
    float p[1][S::kOther / 8][4];
    float gradients[1][S::kOther / 8][4];
    RowsByRows<kHead, 1, S::kOther>(k + row, q, p);
    RowsByRows<kHead, 1, S::kOther>(v + row, d, gradients);
    RM_UNROLL
    for (int n = 0; n < S::kOther / 8; ++n) {
      RM_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int column = n * 8 + lane % 4 * 2 + e % 2;
        const int64_t key = mine + e / 2 * 8 + lane / 4;
        const float score = p[0][n][e] * (head.scale * kLog2e) - row_lse[column];
        p[0][n][e] = key <= queries + column ? exp2f(score) : 0.0f;
        gradients[0][n][e] = p[0][n][e] * (gradients[0][n][e] - row_delta[column]) * head.scale;
      }
    }
    ScoresByRows<kHead, 1, S::kOther>(p, d, d_v);
    ScoresByRows<kHead, 1, S::kOther>(gradients, q, d_k);
  }
  const float one[1][2] = {{1.0f, 1.0f}};
  StoreTile<kHead, 1>(head, mine, d_k, one, d_qkv + head.q + head.width, head.stride, packs);
  StoreTile<kHead, 1>(head, mine, d_v, one, d_qkv + head.q + 2 * head.width, head.stride, packs);
}

// A block owns a tile of queries and loops over the keys that they see.
template <int kHead>
__global__ void __launch_bounds__(kMatrixThreads)
    AttentionQueriesBackwardBf16Kernel(AttentionShape shape, bool packs, const Bf16* qkv, const Bf16* d_out,
                                       const float* lse, const float* delta, Bf16* d_qkv) {
  using S = MatrixTiles<kHead>;
  RM_DYNAMIC_SHARED(Bf16, shared);
  Bf16* const q = shared;
  Bf16* const d = q + S::kOwn * kRowStride<kHead>;
  Bf16* const k = d + S::kOwn * kRowStride<kHead>;
  Bf16* const v = k + S::kOther * kRowStride<kHead>;
  const Head head = HeadOfBlock(shape);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t queries = QueryTile() * S::kOwn;
  const int64_t mine = queries + warp * kMatrixRows;
  const int row = warp * kMatrixRows * kRowStride<kHead>;
  const int64_t keys_end = queries + S::kOwn < head.context ? queries + S::kOwn : head.context;
  float row_lse[2];
  float row_delta[2];
  RM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int64_t query = mine + i * 8 + lane / 4;
    const bool inside = query < head.context;
    row_lse[i] = inside ? lse[head.statistics + query] * kLog2e : 0.0f;
    row_delta[i] = inside ? delta[head.statistics + query] : 0.0f;
  }
  float d_q[1][kHead / 8][4] = {};
  LoadTile<kHead, S::kOwn>(head, queries, qkv + head.q, head.stride, packs, q);
  LoadTile<kHead, S::kOwn>(head, queries, d_out + head.out, head.out_stride, packs, d);
  for (int64_t keys = 0; keys < keys_end; keys += S::kOther) {
    __syncthreads();  // the previous keys are no longer read
    LoadTile<kHead, S::kOther>(head, keys, qkv + head.q + head.width, head.stride, packs, k);
    LoadTile<kHead, S::kOther>(head, keys, qkv + head.q + 2 * head.width, head.stride, packs, v);
    __syncthreads();
    if (keys >= mine + kMatrixRows) continue;
    float p[1][S::kOther / 8][4];
    float gradients[1][S::kOther / 8][4];
    RowsByRows<kHead, 1, S::kOther>(q + row, k, p);
    RowsByRows<kHead, 1, S::kOther>(d + row, v, gradients);
    RM_UNROLL
    for (int n = 0; n < S::kOther / 8; ++n) {
      RM_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int64_t key = keys + n * 8 + lane % 4 * 2 + e % 2;
        const int64_t query = mine + e / 2 * 8 + lane / 4;
        const float score = p[0][n][e] * (head.scale * kLog2e) - row_lse[e / 2];
        const float probability = key <= query ? exp2f(score) : 0.0f;
        gradients[0][n][e] = probability * (gradients[0][n][e] - row_delta[e / 2]) * head.scale;
      }
    }
    ScoresByRows<kHead, 1, S::kOther>(gradients, k, d_q);
  }
  const float one[1][2] = {{1.0f, 1.0f}};
  StoreTile<kHead, 1>(head, mine, d_q, one, d_qkv + head.q, head.stride, packs);
}

template <int kHead>
void ForwardBf16(Stream stream, const AttentionShape& shape, const Bf16* qkv, Bf16* out, float* lse) {
  using S = MatrixTiles<kHead>;
  Launch(AttentionForwardBf16Kernel<kHead>, HeadGrid(shape, S::kQueries), kMatrixThreads, S::kForwardBytes,
         stream, shape, Aligned(shape.head_size, qkv, out), qkv, out, lse);
}

template <int kHead>
void BackwardBf16(Stream stream, const AttentionShape& shape, const Bf16* qkv, const Bf16* d_out,
                  const float* lse, const float* delta, Bf16* d_qkv) {
  using S = MatrixTiles<kHead>;
  const bool packs = Aligned(shape.head_size, qkv, d_out, d_qkv);
  Launch(AttentionKeysBackwardBf16Kernel<kHead>, HeadGrid(shape, S::kOwn), kMatrixThreads, S::kBackwardBytes,
         stream, shape, packs, qkv, d_out, lse, delta, d_qkv);
  Launch(AttentionQueriesBackwardBf16Kernel<kHead>, HeadGrid(shape, S::kOwn), kMatrixThreads,
         S::kBackwardBytes, stream, shape, packs, qkv, d_out, lse, delta, d_qkv);
}

}  // namespace

template <>
void AttentionForward(Stream stream, const AttentionShape& shape, const Bf16* qkv, Bf16* out, float* lse) {
  if (shape.head_size <= 16) return ForwardBf16<16>(stream, shape, qkv, out, lse);
  if (shape.head_size <= 32) return ForwardBf16<32>(stream, shape, qkv, out, lse);
  if (shape.head_size <= 64) return ForwardBf16<64>(stream, shape, qkv, out, lse);
  ForwardBf16<kLargestHead>(stream, shape, qkv, out, lse);
}

template <>
void AttentionBackward(Stream stream, const AttentionShape& shape, const Bf16* qkv, const Bf16* out,
                       const Bf16* d_out, const float* lse, Bf16* d_qkv, float* scratch) {
  AttentionDelta(stream, shape, out, d_out, scratch);
  const float* const delta = scratch;
  if (shape.head_size <= 16) return BackwardBf16<16>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  if (shape.head_size <= 32) return BackwardBf16<32>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  if (shape.head_size <= 64) return BackwardBf16<64>(stream, shape, qkv, d_out, lse, delta, d_qkv);
  BackwardBf16<kLargestHead>(stream, shape, qkv, d_out, lse, delta, d_qkv);
}

}  // namespace ringmaster::cuda::kernels
