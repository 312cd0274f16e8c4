// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/conv.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void Patches(int64_t height, int64_t width, int64_t channels, const float* image, float* patches) {
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t ky = 0; ky < 3; ++ky)
        for (int64_t kx = 0; kx < 3; ++kx) {
          const int64_t iy = y + ky - 1;
          const int64_t ix = x + kx - 1;
          float* to = patches + ((y * width + x) * 9 + ky * 3 + kx) * channels;
          if (iy < 0 || iy >= height || ix < 0 || ix >= width) {
            for (int64_t c = 0; c < channels; ++c) to[c] = 0;
            continue;
          }
          const float* from = image + (iy * width + ix) * channels;
          if (channels == 1) {
            *to = *from;
            continue;
          }
          ForLanes(channels, [&](int64_t c, auto lanes) { Store(to + c, Load(from + c, lanes), lanes); });
        }
}

void PatchesBackward(int64_t height, int64_t width, int64_t channels, const float* patches, float* image) {
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      ForLanes(channels, [&](int64_t c, auto lanes) {
        Floats sum = Splat(0);
        for (int64_t ky = 0; ky < 3; ++ky)
          for (int64_t kx = 0; kx < 3; ++kx) {
            const int64_t py = y - ky + 1;
            const int64_t px = x - kx + 1;
            if (py < 0 || py >= height || px < 0 || px >= width) continue;
            sum = sum + Load(patches + ((py * width + px) * 9 + ky * 3 + kx) * channels + c, lanes);
          }
        Store(image + (y * width + x) * channels + c, sum, lanes);
      });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
