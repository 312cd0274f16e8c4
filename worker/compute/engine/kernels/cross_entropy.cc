// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/cross_entropy.h"

#include "base/portable_math.h"
#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {
namespace {

RM_INLINE float RowLargest(int64_t n, const float* x) {
  Floats most = Splat(-3.4e38f);
  ForLanes(
      n, [&](int64_t i, AllLanes) { most = Max(Load(x + i, AllLanes{}), most); },
      [&](int64_t i, SomeLanes lanes) { most = Max(Load(x + i, lanes, -3.4e38f), most); });
  return Largest(most);
}

RM_INLINE uint8_t Hit(int64_t n, const float* x, float top, int32_t target) {
  // The first of several largest logits wins.
  if (!(x[target] >= top)) return 0;
  for (int64_t i = 0; i < n && i < target; ++i)
    if (x[i] >= top) return 0;
  return 1;
}

}  // namespace

void CrossEntropy(int64_t rows, int64_t classes, const float* logits, const int32_t* targets, float* losses,
                  uint8_t* hits) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = logits + r * classes;
    const int32_t target = targets[r];
    losses[r] = 0;
    hits[r] = 0;
    if (target < 0) continue;
    const float top = RowLargest(classes, x);
    hits[r] = Hit(classes, x, top, target);
    Floats sum = Splat(0);
    ForLanes(
        classes, [&](int64_t i, AllLanes) { sum = sum + Exp(Load(x + i, AllLanes{}) - Splat(top)); },
        [&](int64_t i, SomeLanes lanes) {
          float e[kLanes] = {};
          Store(e, Exp(Load(x + i, lanes) - Splat(top)), lanes);
          sum = sum + Load(e, AllLanes{});
        });
    losses[r] = static_cast<float>(portable::Log(Sum(sum))) + (top - x[target]);
  }
}

void CrossEntropyGradient(int64_t rows, int64_t classes, float* logits, const int32_t* targets,
                          const float* weights, float* losses, uint8_t* hits) {
  for (int64_t r = 0; r < rows; ++r) {
    float* x = logits + r * classes;
    const int32_t target = targets[r];
    losses[r] = 0;
    hits[r] = 0;
    if (target < 0) {
      for (int64_t i = 0; i < classes; ++i) x[i] = 0;
      continue;
    }
    const float top = RowLargest(classes, x);
    hits[r] = Hit(classes, x, top, target);
    const float margin = top - x[target];
    Floats sum = Splat(0);
    ForLanes(classes, [&](int64_t i, auto lanes) {
      Store(x + i, Exp(Load(x + i, lanes) - Splat(top)), lanes);
      sum = sum + Load(x + i, lanes);
    });
    const float total = Sum(sum);
    losses[r] = static_cast<float>(portable::Log(total)) + margin;
    const float factor = weights[r] / total;
    ForLanes(classes,
             [&](int64_t i, auto lanes) { Store(x + i, Load(x + i, lanes) * Splat(factor), lanes); });
    x[target] -= weights[r];
  }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
