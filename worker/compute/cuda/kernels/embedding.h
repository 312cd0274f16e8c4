// SPDX-License-Identifier: Apache-2.0

// Token and learned position embeddings, as in GPT-2. Tables and their gradients are float; activations are
// of type T (float or Bf16).
//
// Shapes: tokens (rows); table (vocabulary, C); positions (context, C); out, d (rows, C), with C = `width`.
// A row is a token: row r has position r % context. REQUIRES: tokens in [0, vocabulary).
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// out[r] = table[tokens[r]] + positions[r % context].
template <class T>
void EmbeddingForward(Stream stream, int64_t rows, int64_t width, int64_t context, const int32_t* tokens,
                      const float* table, const float* positions, T* out);

// table[tokens[r]] += d[r], in the order of rows for each token, with the bits of the CPU kernel. Sorts the
// rows by token first; `scratch` holds EmbeddingBackwardScratch(rows) int32_t.
int64_t EmbeddingBackwardScratch(int64_t rows);
template <class T>
void EmbeddingBackward(Stream stream, int64_t rows, int64_t width, int64_t vocabulary, const int32_t* tokens,
                       const T* d, float* table, int32_t* scratch);

// positions[p] = sum over samples, in order, of d[sample * context + p]. d is (samples * context, C).
template <class T>
void PositionBackward(Stream stream, int64_t samples, int64_t context, int64_t width, const T* d,
                      float* positions);

}  // namespace ringmaster::cuda::kernels
