// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "worker/compute/engine/kernels/maxpool.h"

namespace ringmaster::engine::kernels::reference {

void MaxPoolForward(int64_t height, int64_t width, int64_t channels, const float* image, float* out,
                    uint8_t* winner) {
  for (int64_t y = 0; y + 1 < height; y += 2)
    for (int64_t x = 0; x + 1 < width; x += 2)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t to = (y / 2 * (width / 2) + x / 2) * channels + c;
        for (int cell = 0; cell < 4; ++cell) {
          const float value = image[((y + cell / 2) * width + x + cell % 2) * channels + c];
          if (cell > 0 && !(value > out[to])) continue;
          out[to] = value;
          winner[to] = static_cast<uint8_t>(cell);
        }
      }
}

void MaxPoolBackward(int64_t height, int64_t width, int64_t channels, const float* d_out,
                     const uint8_t* winner, float* d_image) {
  std::fill_n(d_image, height * width * channels, 0.0f);
  for (int64_t y = 0; y < height / 2; ++y)
    for (int64_t x = 0; x < width / 2; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t from = (y * (width / 2) + x) * channels + c;
        const int cell = winner[from];
        d_image[((2 * y + cell / 2) * width + 2 * x + cell % 2) * channels + c] = d_out[from];
      }
}

}  // namespace ringmaster::engine::kernels::reference
