// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/relu.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void ReluForward(int64_t n, float* x) {
  // Max returns its second argument when one is NaN.
  ForLanes(n, [&](int64_t i, auto lanes) { Store(x + i, Max(Splat(0), Load(x + i, lanes)), lanes); });
}

void ReluBackward(int64_t n, const float* y, float* d) {
  ForLanes(n, [&](int64_t i, auto lanes) {
    Store(d + i, WherePositive(Load(y + i, lanes), Load(d + i, lanes)), lanes);
  });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
