// SPDX-License-Identifier: Apache-2.0

// Causal attention from packed q, k, v, flash style: scores stay in shared memory and registers, tile by
// tile; only the log-sum-exp of each row is kept for backward, which finds the probabilities again. Backward
// has no atomics: one pass over query tiles per key tile gives d_k and d_v, one over key tiles per query tile
// d_q.
//
// qkv is [samples * context, 3 * heads * head_size], q before k before v, each head's numbers together; out
// and d_out are [samples * context, heads * head_size]; lse is [samples, heads, context]. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// Larger heads do not fit the tiles.
inline constexpr int64_t kLargestHead = 128;

struct AttentionShape {
  int64_t samples = 0;
  int64_t heads = 0;
  int64_t context = 0;
  int64_t head_size = 0;
};

template <class T>
void AttentionForward(Stream stream, const AttentionShape& shape, const T* qkv, T* out, float* lse);

// d_qkv, laid out as qkv, is overwritten. `scratch` holds AttentionBackwardScratch floats.
int64_t AttentionBackwardScratch(const AttentionShape& shape);
template <class T>
void AttentionBackward(Stream stream, const AttentionShape& shape, const T* qkv, const T* out, const T* d_out,
                       const float* lse, T* d_qkv, float* scratch);

}  // namespace ringmaster::cuda::kernels
