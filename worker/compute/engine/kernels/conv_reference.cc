// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "worker/compute/engine/kernels/conv.h"

namespace ringmaster::engine::kernels::reference {
namespace {

// Calls visit(patch element, image element, or -1 outside of the image) in the order of patches.
template <class Visit>
void ForEachTap(int64_t height, int64_t width, int64_t channels, const Visit& visit) {
  int64_t patch = 0;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t ky = -1; ky <= 1; ++ky)
        for (int64_t kx = -1; kx <= 1; ++kx) {
          const bool inside = y + ky >= 0 && y + ky < height && x + kx >= 0 && x + kx < width;
          for (int64_t c = 0; c < channels; ++c)
            visit(patch++, inside ? ((y + ky) * width + x + kx) * channels + c : -1);
        }
}

}  // namespace

void Patches(int64_t height, int64_t width, int64_t channels, const float* image, float* patches) {
  ForEachTap(height, width, channels,
             [&](int64_t patch, int64_t at) { patches[patch] = at < 0 ? 0.0f : image[at]; });
}

void PatchesBackward(int64_t height, int64_t width, int64_t channels, const float* patches, float* image) {
  std::fill_n(image, height * width * channels, 0.0f);
  ForEachTap(height, width, channels, [&](int64_t patch, int64_t at) {
    if (at >= 0) image[at] += patches[patch];
  });
}

}  // namespace ringmaster::engine::kernels::reference
