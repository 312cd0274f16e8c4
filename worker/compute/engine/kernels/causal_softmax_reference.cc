// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>

#include "worker/compute/engine/kernels/causal_softmax.h"

namespace ringmaster::engine::kernels::reference {

void CausalSoftmax(int64_t rows, int64_t keys, int64_t first, float scale, float* scores, float* lse) {
  for (int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * keys;
    const int64_t seen = std::min(keys, first + r + 1);
    const double top = static_cast<double>(*std::max_element(s, s + seen)) * scale;
    double total = 0;
    for (int64_t i = 0; i < seen; ++i) total += std::exp(static_cast<double>(s[i]) * scale - top);
    lse[r] = static_cast<float>(top + std::log(total));
    for (int64_t i = 0; i < keys; ++i)
      s[i] = i < seen ? static_cast<float>(std::exp(static_cast<double>(s[i]) * scale - top) / total) : 0.0f;
  }
}

void CausalSoftmaxBackward(int64_t rows, int64_t keys, int64_t first, float scale, const float* lse,
                           const float* delta, float* scores, float* d) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < keys; ++i) {
      float& s = scores[r * keys + i];
      float& g = d[r * keys + i];
      if (i > first + r) {
        s = g = 0;
        continue;
      }
      s = static_cast<float>(std::exp(static_cast<double>(s) * scale - lse[r]));
      g = s * (g - delta[r]) * scale;
    }
}

void RowDots(int64_t rows, int64_t width, const float* a, int64_t lda, const float* b, int64_t ldb,
             float* dots) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(a[r * lda + i]) * b[r * ldb + i];
    dots[r] = static_cast<float>(sum);
  }
}

}  // namespace ringmaster::engine::kernels::reference
