// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/maxpool.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

// Runs over the elements of out.
template <class T>
struct WindowMaximum {
  ImageShape shape;
  const T* images;
  T* out;
  uint8_t* winner;
  template <int kCount>
  __device__ void At(int64_t i) const {
    const int64_t wide = shape.width / 2;
    const int64_t high = shape.height / 2;
    const int64_t channel = i % shape.channels;
    const int64_t window = i / shape.channels;
    const int64_t x = window % wide * 2;
    const int64_t y = window / wide % high * 2;
    const int64_t sample = window / wide / high;
    float top[kCount];
    int best[kCount] = {};
    for (int cell = 0; cell < 4; ++cell) {
      const int64_t pixel = (sample * shape.height + y + cell / 2) * shape.width + x + cell % 2;
      float v[kCount];
      Load(images + pixel * shape.channels + channel, v);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) {
        if (cell > 0 && !(v[j] > top[j])) continue;
        top[j] = v[j];
        best[j] = cell;
      }
    }
    Store(out + i, top);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) winner[i + j] = static_cast<uint8_t>(best[j]);
  }
};

// Runs over the elements of d_images.
template <class T>
struct ToWinners {
  ImageShape shape;
  const T* d_out;
  const uint8_t* winner;
  T* d_images;
  template <int kCount>
  __device__ void At(int64_t i) const {
    const int64_t wide = shape.width / 2;
    const int64_t high = shape.height / 2;
    const int64_t channel = i % shape.channels;
    const int64_t pixel = i / shape.channels;
    const int64_t x = pixel % shape.width;
    const int64_t y = pixel / shape.width % shape.height;
    const int64_t sample = pixel / shape.width / shape.height;
    float d[kCount] = {};
    if (x / 2 < wide && y / 2 < high) {
      const int64_t from = ((sample * high + y / 2) * wide + x / 2) * shape.channels + channel;
      const auto cell = static_cast<int>(y % 2 * 2 + x % 2);
      Load(d_out + from, d);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) d[j] = winner[from + j] == cell ? d[j] : 0.0f;
    }
    Store(d_images + i, d);
  }
};

}  // namespace

template <class T>
void MaxPoolForward(Stream stream, const ImageShape& shape, const T* images, T* out, uint8_t* winner) {
  ForElements(stream, shape.samples * (shape.height / 2) * (shape.width / 2) * shape.channels,
              Aligned(shape.channels, images, out), WindowMaximum<T>{shape, images, out, winner});
}

template <class T>
void MaxPoolBackward(Stream stream, const ImageShape& shape, const T* d_out, const uint8_t* winner,
                     T* d_images) {
  ForElements(stream, shape.samples * shape.height * shape.width * shape.channels,
              Aligned(shape.channels, d_out, d_images), ToWinners<T>{shape, d_out, winner, d_images});
}

#define RM_INSTANTIATE(T)                                                          \
  template void MaxPoolForward(Stream, const ImageShape&, const T*, T*, uint8_t*); \
  template void MaxPoolBackward(Stream, const ImageShape&, const T*, const uint8_t*, T*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
