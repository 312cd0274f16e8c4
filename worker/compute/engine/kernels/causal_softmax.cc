// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/causal_softmax.h"

#include "base/portable_math.h"
#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void CausalSoftmax(int64_t rows, int64_t keys, int64_t first, float scale, float* scores, float* lse) {
  for (int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * keys;
    const int64_t seen = first + r + 1 < keys ? first + r + 1 : keys;
    Floats most = Splat(-3.0e38f);
    ForLanes(
        seen, [&](int64_t i, AllLanes) { most = Max(Load(s + i, AllLanes{}), most); },
        [&](int64_t i, SomeLanes lanes) { most = Max(Load(s + i, lanes, -3.0e38f), most); });
    const float top = Largest(most) * scale;
    Floats sum = Splat(0);
    ForLanes(
        seen,
        [&](int64_t i, AllLanes) {
          const Floats e = Exp(Load(s + i, AllLanes{}) * Splat(scale) - Splat(top));
          sum = sum + e;
          Store(s + i, e, AllLanes{});
        },
        [&](int64_t i, SomeLanes lanes) {
          const Floats e = Exp(Load(s + i, lanes) * Splat(scale) - Splat(top));
          Store(s + i, e, lanes);
          sum = sum + Load(s + i, lanes);
        });
    const float total = Sum(sum);
    const float inverse = 1.0f / total;
    ForLanes(seen, [&](int64_t i, auto lanes) { Store(s + i, Load(s + i, lanes) * Splat(inverse), lanes); });
    for (int64_t i = seen; i < keys; ++i) s[i] = 0;
    lse[r] = top + static_cast<float>(portable::Log(total));
  }
}

void CausalSoftmaxBackward(int64_t rows, int64_t keys, int64_t first, float scale, const float* lse,
                           const float* delta, float* scores, float* d) {
  for (int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * keys;
    float* g = d + r * keys;
    const int64_t seen = first + r + 1 < keys ? first + r + 1 : keys;
    ForLanes(seen, [&](int64_t i, auto lanes) {
      const Floats p = Exp(Load(s + i, lanes) * Splat(scale) - Splat(lse[r]));
      Store(s + i, p, lanes);
      Store(g + i, p * (Load(g + i, lanes) - Splat(delta[r])) * Splat(scale), lanes);
    });
    for (int64_t i = seen; i < keys; ++i) s[i] = g[i] = 0;
  }
}

void RowDots(int64_t rows, int64_t width, const float* a, int64_t lda, const float* b, int64_t ldb,
             float* dots) {
  for (int64_t r = 0; r < rows; ++r) {
    Floats sum = Splat(0);
    ForLanes(width, [&](int64_t i, auto lanes) {
      sum = sum + Load(a + r * lda + i, lanes) * Load(b + r * ldb + i, lanes);
    });
    dots[r] = Sum(sum);
  }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
