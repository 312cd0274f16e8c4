// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/maxpool.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

// Loops over channels without data-dependent branches, which the compiler vectorises.
void MaxPoolForward(int64_t height, int64_t width, int64_t channels, const float* __restrict image,
                    float* __restrict out, uint8_t* __restrict winner) {
  for (int64_t y = 0; y < height / 2; ++y)
    for (int64_t x = 0; x < width / 2; ++x) {
      const float* a = image + (2 * y * width + 2 * x) * channels;
      const float* b = a + channels;
      const float* c = a + width * channels;
      const float* d = c + channels;
      const int64_t to = (y * (width / 2) + x) * channels;
      for (int64_t i = 0; i < channels; ++i) {
        const int32_t right = b[i] > a[i] ? 1 : 0;
        const float top = b[i] > a[i] ? b[i] : a[i];
        const int32_t below = d[i] > c[i] ? 3 : 2;
        const float bottom = d[i] > c[i] ? d[i] : c[i];
        out[to + i] = bottom > top ? bottom : top;
        winner[to + i] = static_cast<uint8_t>(bottom > top ? below : right);
      }
    }
}

void MaxPoolBackward(int64_t height, int64_t width, int64_t channels, const float* __restrict d_out,
                     const uint8_t* __restrict winner, float* __restrict d_image) {
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      float* to = d_image + (y * width + x) * channels;
      if (y / 2 >= height / 2 || x / 2 >= width / 2) {
        for (int64_t i = 0; i < channels; ++i) to[i] = 0;
        continue;
      }
      const int64_t from = (y / 2 * (width / 2) + x / 2) * channels;
      const int32_t cell = static_cast<int32_t>(y % 2 * 2 + x % 2);
      for (int64_t i = 0; i < channels; ++i)
        to[i] = static_cast<int32_t>(winner[from + i]) == cell ? d_out[from + i] : 0.0f;
    }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
