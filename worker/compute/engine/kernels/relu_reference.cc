// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/relu.h"

namespace ringmaster::engine::kernels::reference {

void ReluForward(int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i)
    if (x[i] < 0) x[i] = 0;
}

void ReluBackward(int64_t n, const float* y, float* d) {
  for (int64_t i = 0; i < n; ++i)
    if (!(y[i] > 0)) d[i] = 0;
}

}  // namespace ringmaster::engine::kernels::reference
