// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/convert.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

struct Rounding {
  const float* x;
  Bf16* y;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    Load(x + i, v);
    Store(y + i, v);
  }
};

}  // namespace

void ToBf16(Stream stream, int64_t n, const float* x, Bf16* y) {
  ForElements(stream, n, Aligned(0, x, y), Rounding{x, y});
}

}  // namespace ringmaster::cuda::kernels
