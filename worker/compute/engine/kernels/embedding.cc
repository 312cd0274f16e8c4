// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/embedding.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void EmbeddingForward(int64_t rows, int64_t width, int64_t first_row, int64_t context, const int32_t* tokens,
                      const float* table, const float* positions, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* token = table + tokens[r] * width;
    const float* position = positions + (first_row + r) % context * width;
    ForLanes(width, [&](int64_t i, auto lanes) {
      Store(out + r * width + i, Load(token + i, lanes) + Load(position + i, lanes), lanes);
    });
  }
}

void EmbeddingBackward(int64_t rows, int64_t width, int64_t begin, int64_t end, const int32_t* tokens,
                       const float* d, float* table) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = table + tokens[r] * width + begin;
    const float* from = d + r * width + begin;
    ForLanes(end - begin, [&](int64_t i, auto lanes) {
      Store(row + i, Load(row + i, lanes) + Load(from + i, lanes), lanes);
    });
  }
}

void PositionBackward(int64_t samples, int64_t context, int64_t width, int64_t begin, int64_t end,
                      const float* d, float* positions) {
  for (int64_t p = begin; p < end; ++p)
    ForLanes(width, [&](int64_t i, auto lanes) {
      Floats sum = Splat(0);
      for (int64_t s = 0; s < samples; ++s) sum = sum + Load(d + (s * context + p) * width + i, lanes);
      Store(positions + p * width + i, sum, lanes);
    });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
