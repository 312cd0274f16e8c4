// SPDX-License-Identifier: Apache-2.0

// Causal self-attention from packed q, k, v: out = softmax(q k^T / sqrt(D) + causal mask) v, per head.
// Source: FlashAttention (Dao et al. 2022). Scores stay in shared memory and registers, tile by tile.
// Forward keeps only the log-sum-exp of each row, from which backward recomputes the probabilities. Backward
// uses no atomics: for each key tile, one pass over the query tiles computes d_k and d_v; for each query
// tile, one pass over the key tiles computes d_q.
//
// Shapes, with B samples, H heads, context T and head size D: qkv, d_qkv (B, T, 3, H, D), q before k before
// v; out, d_out (B, T, H, D); lse (B, H, T), natural logarithm. The element type T of the templates is float
// or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// The largest head size that fits the tiles.
inline constexpr int64_t kLargestHead = 128;

struct AttentionShape {
  int64_t samples = 0;    // B
  int64_t heads = 0;      // H
  int64_t context = 0;    // T
  int64_t head_size = 0;  // D
};

// Writes out and lse.
template <class T>
void AttentionForward(Stream stream, const AttentionShape& shape, const T* qkv, T* out, float* lse);

// Overwrites d_qkv. `scratch` holds AttentionBackwardScratch floats.
int64_t AttentionBackwardScratch(const AttentionShape& shape);
template <class T>
void AttentionBackward(Stream stream, const AttentionShape& shape, const T* qkv, const T* out, const T* d_out,
                       const float* lse, T* d_qkv, float* scratch);

}  // namespace ringmaster::cuda::kernels
