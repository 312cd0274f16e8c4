// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/layernorm.h"

#include <cmath>

namespace ringmaster::engine::kernels::reference {

void LayerNormForward(int64_t rows, int64_t width, const float* x, const float* gamma, const float* beta,
                      float* out, float* mean, float* rstd) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += row[i];
    const double average = sum / static_cast<double>(width);
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += (row[i] - average) * (row[i] - average);
    const double inverse =
        1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(kLayerNormEpsilon));
    for (int64_t i = 0; i < width; ++i)
      out[r * width + i] = static_cast<float>((row[i] - average) * inverse * gamma[i] + beta[i]);
    mean[r] = static_cast<float>(average);
    rstd[r] = static_cast<float>(inverse);
  }
}

void LayerNormBackward(int64_t rows, int64_t width, const float* dy, const float* x, const float* gamma,
                       const float* mean, const float* rstd, float* dx) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    double dot = 0;
    const auto normal = [&](int64_t i) {
      return (static_cast<double>(x[r * width + i]) - mean[r]) * rstd[r];
    };
    const auto g = [&](int64_t i) { return static_cast<double>(dy[r * width + i]) * gamma[i]; };
    for (int64_t i = 0; i < width; ++i) {
      sum += g(i);
      dot += g(i) * normal(i);
    }
    const auto n = static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i)
      dx[r * width + i] += static_cast<float>((g(i) - sum / n - normal(i) * dot / n) * rstd[r]);
  }
}

void LayerNormBackwardParams(int64_t rows, int64_t width, int64_t begin, int64_t end, const float* dy,
                             const float* x, const float* mean, const float* rstd, float* dgamma,
                             float* dbeta) {
  for (int64_t i = begin; i < end; ++i) {
    double gamma = 0;
    double beta = 0;
    for (int64_t r = 0; r < rows; ++r) {
      gamma += static_cast<double>(dy[r * width + i]) * (x[r * width + i] - mean[r]) * rstd[r];
      beta += dy[r * width + i];
    }
    dgamma[i] = static_cast<float>(gamma);
    dbeta[i] = static_cast<float>(beta);
  }
}

}  // namespace ringmaster::engine::kernels::reference
