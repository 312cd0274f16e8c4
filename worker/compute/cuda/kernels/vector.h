// SPDX-License-Identifier: Apache-2.0

// Loads and stores of T (float or Bf16) as floats, several per access where memory is aligned. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/launch.h"

namespace ringmaster::cuda::kernels {

// Elements per access of a thread where memory is aligned: sixteen bytes of Bf16, thirty-two of float.
inline constexpr int kPack = 8;

// Eight elements as they are in memory, which need fewer registers than as floats.
template <class T>
struct Pack {
  uint4 words[sizeof(T) / 2];
};

// REQUIRES: the address is a multiple of 16.
template <class T>
__device__ __forceinline__ Pack<T> LoadPack(const T* from) {
  Pack<T> pack;
  RM_UNROLL
  for (unsigned i = 0; i < sizeof(T) / 2; ++i) pack.words[i] = reinterpret_cast<const uint4*>(from)[i];
  return pack;
}

template <class T>
__device__ __forceinline__ void Unpack(const Pack<T>& pack, float (&to)[kPack]) {
  RM_UNROLL
  for (unsigned i = 0; i < sizeof(T) / 2; ++i) {
    const uint32_t words[4] = {pack.words[i].x, pack.words[i].y, pack.words[i].z, pack.words[i].w};
    RM_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 2) {
        to[2 * j] = __uint_as_float(words[j] << 16);
        to[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000U);
      } else {
        to[4 * i + j] = __uint_as_float(words[j]);
      }
    }
  }
}

// Loads 1, 4 (float) or 8 elements. REQUIRES: for more than one, the address is a multiple of 16.
template <int kCount, class T>
__device__ __forceinline__ void Load(const T* from, float (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = ToFloat(*from);
  } else if constexpr (kCount == kPack) {
    Unpack(LoadPack(from), to);
  } else {
    static_assert(kCount == 4 && sizeof(T) == 4);
    const uint4 w = *reinterpret_cast<const uint4*>(from);
    to[0] = __uint_as_float(w.x);
    to[1] = __uint_as_float(w.y);
    to[2] = __uint_as_float(w.z);
    to[3] = __uint_as_float(w.w);
  }
}

// Packs two numbers into a word, the first in the lower half. The instruction makes every NaN 0x7fff, whereas
// RoundToBf16 keeps its sign and upper bits.
__device__ __forceinline__ uint32_t PackBf16(float first, float second) {
#if defined(__CUDA_ARCH__)
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  constexpr uint32_t kNan = 0x7fff;
  const uint32_t low = first != first ? kNan : RoundToBf16(first).bits;
  const uint32_t high = second != second ? kNan : RoundToBf16(second).bits;
  return low | high << 16;
#endif
}

inline constexpr float kLog2e = 1.44269504f;

// Returns 2^x by one instruction, with an error of two units in the last place; results below 2^-126 are
// zero.
__device__ __forceinline__ float FastExp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
#endif
}

// Stores two numbers. REQUIRES: the address is a multiple of four.
__device__ __forceinline__ void StorePair(Bf16* to, float first, float second) {
  using Word [[gnu::may_alias]] = uint32_t;
  *reinterpret_cast<Word*>(to) = PackBf16(first, second);
}

template <int kCount, class T>
__device__ __forceinline__ void Store(T* to, const float (&from)[kCount]) {
  if constexpr (kCount == 1) {
    *to = FromFloat<T>(from[0]);
  } else if constexpr (sizeof(T) == 2) {
    static_assert(kCount == 8);
    *reinterpret_cast<uint4*>(to) = uint4{PackBf16(from[0], from[1]), PackBf16(from[2], from[3]),
                                          PackBf16(from[4], from[5]), PackBf16(from[6], from[7])};
  } else {
    static_assert(kCount % 4 == 0);
    RM_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<uint4*>(to + i) = uint4{__float_as_uint(from[i]), __float_as_uint(from[i + 1]),
                                                __float_as_uint(from[i + 2]), __float_as_uint(from[i + 3])};
    }
  }
}

// Stores eight numbers and rounds them to what is stored. REQUIRES: the address is a multiple of 16.
template <class T>
__device__ __forceinline__ void StoreRounded(T* to, float (&values)[kPack]) {
  Pack<T> pack;
  Store(reinterpret_cast<T*>(pack.words), values);
  RM_UNROLL
  for (unsigned i = 0; i < sizeof(T) / 2; ++i) reinterpret_cast<uint4*>(to)[i] = pack.words[i];
  Unpack(pack, values);
}

// Returns whether rows of `width` elements that begin at these addresses can be accessed kPack at a time.
template <class... T>
bool Aligned(int64_t width, const T*... pointers) {
  return width % kPack == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Returns the number of blocks of `size` that cover n.
inline unsigned Cover(int64_t n, int64_t size) { return static_cast<unsigned>((n + size - 1) / size); }

}  // namespace ringmaster::cuda::kernels
