// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/layernorm.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void LayerNormForward(int64_t rows, int64_t width, const float* x, const float* gamma, const float* beta,
                      float* out, float* mean, float* rstd) {
  const float share = 1.0f / static_cast<float>(width);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    Floats sum = Splat(0);
    ForLanes(width, [&](int64_t i, auto lanes) { sum = sum + Load(row + i, lanes); });
    const float average = Sum(sum) * share;
    Floats squares = Splat(0);
    ForLanes(
        width,
        [&](int64_t i, AllLanes) {
          const Floats off = Load(row + i, AllLanes{}) - Splat(average);
          squares = squares + off * off;
        },
        [&](int64_t i, SomeLanes lanes) {
          const Floats off = Load(row + i, lanes, average) - Splat(average);
          squares = squares + off * off;
        });
    const float inverse = 1.0f / __builtin_sqrtf(Sum(squares) * share + kLayerNormEpsilon);
    ForLanes(width, [&](int64_t i, auto lanes) {
      const Floats normal = (Load(row + i, lanes) - Splat(average)) * Splat(inverse);
      Store(out + r * width + i, normal * Load(gamma + i, lanes) + Load(beta + i, lanes), lanes);
    });
    mean[r] = average;
    rstd[r] = inverse;
  }
}

void LayerNormBackward(int64_t rows, int64_t width, const float* dy, const float* x, const float* gamma,
                       const float* mean, const float* rstd, float* dx) {
  const float share = 1.0f / static_cast<float>(width);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    const float* d = dy + r * width;
    const Floats average = Splat(mean[r]);
    const Floats inverse = Splat(rstd[r]);
    Floats sum = Splat(0);
    Floats dot = Splat(0);
    ForLanes(width, [&](int64_t i, auto lanes) {
      const Floats g = Load(d + i, lanes) * Load(gamma + i, lanes);
      sum = sum + g;
      dot = dot + g * ((Load(row + i, lanes) - average) * inverse);
    });
    const Floats sum_mean = Splat(Sum(sum) * share);
    const Floats dot_mean = Splat(Sum(dot) * share);
    ForLanes(width, [&](int64_t i, auto lanes) {
      const Floats g = Load(d + i, lanes) * Load(gamma + i, lanes);
      const Floats normal = (Load(row + i, lanes) - average) * inverse;
      float* to = dx + r * width + i;
      Store(to, Load(to, lanes) + (g - sum_mean - normal * dot_mean) * inverse, lanes);
    });
  }
}

void LayerNormBackwardParams(int64_t rows, int64_t width, int64_t begin, int64_t end, const float* dy,
                             const float* x, const float* mean, const float* rstd, float* dgamma,
                             float* dbeta) {
  const auto columns = [&](int64_t i, auto lanes) {
    Floats gamma = Splat(0);
    Floats beta = Splat(0);
    for (int64_t r = 0; r < rows; ++r) {
      const Floats d = Load(dy + r * width + i, lanes);
      const Floats normal = (Load(x + r * width + i, lanes) - Splat(mean[r])) * Splat(rstd[r]);
      gamma = gamma + d * normal;
      beta = beta + d;
    }
    Store(dgamma + i, gamma, lanes);
    Store(dbeta + i, beta, lanes);
  };
  // Four vectors of columns at a time, so that every cache line of a row is read as a whole.
  int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    Floats gamma[4] = {Splat(0), Splat(0), Splat(0), Splat(0)};
    Floats beta[4] = {Splat(0), Splat(0), Splat(0), Splat(0)};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t at = r * width + i + j * kLanes;
        const Floats d = Load(dy + at, AllLanes{});
        gamma[j] = gamma[j] + d * ((Load(x + at, AllLanes{}) - Splat(mean[r])) * Splat(rstd[r]));
        beta[j] = beta[j] + d;
      }
    for (int64_t j = 0; j < 4; ++j) {
      Store(dgamma + i + j * kLanes, gamma[j], AllLanes{});
      Store(dbeta + i + j * kLanes, beta[j], AllLanes{});
    }
  }
  ForLanes(end - i, [&](int64_t j, auto lanes) { columns(i + j, lanes); });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
