// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>

#include "worker/compute/engine/kernels/cross_entropy.h"

namespace ringmaster::engine::kernels::reference {

void CrossEntropy(int64_t rows, int64_t classes, const float* logits, const int32_t* targets, float* losses,
                  uint8_t* hits) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = logits + r * classes;
    losses[r] = 0;
    hits[r] = 0;
    if (targets[r] < 0) continue;
    const float* top = std::max_element(x, x + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(static_cast<double>(x[i]) - *top);
    losses[r] = static_cast<float>(std::log(sum) + *top - x[targets[r]]);
    hits[r] = top - x == targets[r] ? 1 : 0;
  }
}

void CrossEntropyGradient(int64_t rows, int64_t classes, float* logits, const int32_t* targets,
                          const float* weights, float* losses, uint8_t* hits) {
  CrossEntropy(rows, classes, logits, targets, losses, hits);
  for (int64_t r = 0; r < rows; ++r) {
    float* x = logits + r * classes;
    if (targets[r] < 0) {
      std::fill(x, x + classes, 0.0f);
      continue;
    }
    const double lse = static_cast<double>(losses[r]) + x[targets[r]];
    for (int64_t i = 0; i < classes; ++i) {
      const double gradient = std::exp(x[i] - lse) - (i == targets[r] ? 1.0 : 0.0);
      x[i] = static_cast<float>(gradient * weights[r]);
    }
  }
}

}  // namespace ringmaster::engine::kernels::reference
