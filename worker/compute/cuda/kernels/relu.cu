// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/relu.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

template <class T>
struct Relu {
  T* x;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    Load(x + i, v);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = v[j] < 0 ? 0.0f : v[j];
    Store(x + i, v);
  }
};

template <class T>
struct ReluMask {
  const T* y;
  T* d;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    float g[kCount];
    Load(y + i, v);
    Load(d + i, g);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) g[j] = v[j] > 0 ? g[j] : 0.0f;
    Store(d + i, g);
  }
};

}  // namespace

template <class T>
void ReluForward(Stream stream, int64_t n, T* x) {
  ForElements(stream, n, Aligned(0, x), Relu<T>{x});
}

template <class T>
void ReluBackward(Stream stream, int64_t n, const T* y, T* d) {
  ForElements(stream, n, Aligned(0, y, d), ReluMask<T>{y, d});
}

template void ReluForward(Stream, int64_t, float*);
template void ReluForward(Stream, int64_t, Bf16*);
template void ReluBackward(Stream, int64_t, const float*, float*);
template void ReluBackward(Stream, int64_t, const Bf16*, Bf16*);

}  // namespace ringmaster::cuda::kernels
