// SPDX-License-Identifier: Apache-2.0

// Token and position embeddings. Rows are tokens; row r stands at position r % context. Tables and their
// gradients are float, activations T (float or Bf16). Tokens lie in [0, vocabulary); the caller has checked.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// out[r] = table[tokens[r]] + positions[r % context], each of `width` numbers.
template <class T>
void EmbeddingForward(Stream stream, int64_t rows, int64_t width, int64_t context, const int32_t* tokens,
                      const float* table, const float* positions, T* out);

// table[tokens[r]] += d[r], the rows of one token in their order: the bits of the CPU's. Rows are first
// sorted by token; `scratch` holds EmbeddingBackwardScratch(rows) int32_t.
int64_t EmbeddingBackwardScratch(int64_t rows);
template <class T>
void EmbeddingBackward(Stream stream, int64_t rows, int64_t width, int64_t vocabulary, const int32_t* tokens,
                       const T* d, float* table, int32_t* scratch);

// positions[p] = sum over samples, in order, of d[sample * context + p].
template <class T>
void PositionBackward(Stream stream, int64_t samples, int64_t context, int64_t width, const T* d,
                      float* positions);

}  // namespace ringmaster::cuda::kernels
