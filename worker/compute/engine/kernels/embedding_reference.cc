// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/embedding.h"

namespace ringmaster::engine::kernels::reference {

void EmbeddingForward(int64_t rows, int64_t width, int64_t first_row, int64_t context, const int32_t* tokens,
                      const float* table, const float* positions, float* out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      out[r * width + i] = table[tokens[r] * width + i] + positions[(first_row + r) % context * width + i];
}

void EmbeddingBackward(int64_t rows, int64_t width, int64_t begin, int64_t end, const int32_t* tokens,
                       const float* d, float* table) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = begin; i < end; ++i) table[tokens[r] * width + i] += d[r * width + i];
}

void PositionBackward(int64_t samples, int64_t context, int64_t width, int64_t begin, int64_t end,
                      const float* d, float* positions) {
  for (int64_t p = begin; p < end; ++p)
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (int64_t s = 0; s < samples; ++s) sum += d[(s * context + p) * width + i];
      positions[p * width + i] = sum;
    }
}

}  // namespace ringmaster::engine::kernels::reference
