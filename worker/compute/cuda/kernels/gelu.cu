// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/gelu.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

// Returns 1 / (1 + e^(-2u)): gelu(x) = x * gate.
__device__ __forceinline__ float GeluGate(float x) {
  return 1.0f / (1.0f + expf(-kTwoRootTwoOverPi * x * (1.0f + kCubic * x * x)));
}

template <int kCount>
struct GeluBias {
  float v[kCount];
};

template <class T>
struct BiasGelu {
  const T* bias;
  T* x;
  T* y;
  template <int kCount>
  __device__ GeluBias<kCount> Column(int64_t column) const {
    GeluBias<kCount> shared;
    Load(bias + column, shared.v);
    return shared;
  }
  template <int kCount>
  __device__ void At(int64_t i, const GeluBias<kCount>& shared) const {
    float v[kCount];
    Load(x + i, v);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = ToFloat(FromFloat<T>(v[j] + shared.v[j]));
    Store(x + i, v);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] *= GeluGate(v[j]);
    Store(y + i, v);
  }
};

template <class T>
struct GeluSlope {
  const T* x;
  T* d;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    float g[kCount];
    Load(x + i, v);
    Load(d + i, g);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const float gate = GeluGate(v[j]);
      const float slope = kTwoRootTwoOverPi * (1.0f + 3 * kCubic * v[j] * v[j]);
      g[j] *= gate + v[j] * gate * (1.0f - gate) * slope;
    }
    Store(d + i, g);
  }
};

}  // namespace

template <class T>
void BiasGeluForward(Stream stream, int64_t rows, int64_t columns, const T* bias, T* x, T* y) {
  ForRows(stream, rows, columns, Aligned(columns, bias, x, y), BiasGelu<T>{bias, x, y});
}

template <class T>
void GeluBackward(Stream stream, int64_t n, const T* x, T* d) {
  ForElements(stream, n, Aligned(0, x, d), GeluSlope<T>{x, d});
}

template void BiasGeluForward(Stream, int64_t, int64_t, const float*, float*, float*);
template void BiasGeluForward(Stream, int64_t, int64_t, const Bf16*, Bf16*, Bf16*);
template void GeluBackward(Stream, int64_t, const float*, float*);
template void GeluBackward(Stream, int64_t, const Bf16*, Bf16*);

}  // namespace ringmaster::cuda::kernels
