// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/conv.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

template <class T>
struct ToChannelsLast {
  int64_t pixels;
  int64_t channels;
  const float* images;
  T* out;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const int64_t channel = (i + j) % channels;
      const int64_t pixel = (i + j) / channels % pixels;
      const int64_t sample = (i + j) / channels / pixels;
      v[j] = images[(sample * channels + channel) * pixels + pixel];
    }
    Store(out + i, v);
  }
};

// Runs over the elements of patches. A pack is within the channels of one tap, because channels are a
// multiple of kPack when packs are used.
template <class T>
struct GatherPatches {
  ImageShape shape;
  const T* images;
  T* patches;
  template <int kCount>
  __device__ void At(int64_t i) const {
    const int64_t channel = i % shape.channels;
    const int64_t tap = i / shape.channels % 9;
    const int64_t pixel = i / shape.channels / 9;
    const int64_t x = pixel % shape.width + tap % 3 - 1;
    const int64_t y = pixel / shape.width % shape.height + tap / 3 - 1;
    const int64_t sample = pixel / shape.width / shape.height;
    float v[kCount] = {};
    if (x >= 0 && x < shape.width && y >= 0 && y < shape.height) {
      Load(images + ((sample * shape.height + y) * shape.width + x) * shape.channels + channel, v);
    }
    Store(patches + i, v);
  }
};

// Runs over the elements of images.
template <class T>
struct SumPatches {
  ImageShape shape;
  const T* patches;
  T* images;
  template <int kCount>
  __device__ void At(int64_t i) const {
    const int64_t channel = i % shape.channels;
    const int64_t pixel = i / shape.channels;
    const int64_t x = pixel % shape.width;
    const int64_t y = pixel / shape.width % shape.height;
    const int64_t sample = pixel / shape.width / shape.height;
    float sum[kCount] = {};
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t px = x - tap % 3 + 1;
      const int64_t py = y - tap / 3 + 1;
      if (px < 0 || px >= shape.width || py < 0 || py >= shape.height) continue;
      float v[kCount];
      Load(patches + (((sample * shape.height + py) * shape.width + px) * 9 + tap) * shape.channels + channel,
           v);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) sum[j] += v[j];
    }
    Store(images + i, sum);
  }
};

int64_t Elements(const ImageShape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
}

}  // namespace

template <class T>
void ChannelsLast(Stream stream, const ImageShape& shape, const float* images, T* out) {
  ForElements(stream, Elements(shape), Aligned(0, out),
              ToChannelsLast<T>{shape.height * shape.width, shape.channels, images, out});
}

template <class T>
void Patches(Stream stream, const ImageShape& shape, const T* images, T* patches) {
  ForElements(stream, 9 * Elements(shape), Aligned(shape.channels, images, patches),
              GatherPatches<T>{shape, images, patches});
}

template <class T>
void PatchesBackward(Stream stream, const ImageShape& shape, const T* patches, T* images) {
  ForElements(stream, Elements(shape), Aligned(shape.channels, images, patches),
              SumPatches<T>{shape, patches, images});
}

#define RM_INSTANTIATE(T)                                                  \
  template void ChannelsLast(Stream, const ImageShape&, const float*, T*); \
  template void Patches(Stream, const ImageShape&, const T*, T*);          \
  template void PatchesBackward(Stream, const ImageShape&, const T*, T*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
