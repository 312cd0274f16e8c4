// SPDX-License-Identifier: Apache-2.0

// The size of a warp, and its reduction. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/launch.h"

namespace ringmaster::cuda::kernels {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffU;

// Returns the sum over the lanes, the same bits in every lane. The order of additions is fixed.
template <class T>
__device__ __forceinline__ T WarpSum(T value) {
  RM_UNROLL
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

}  // namespace ringmaster::cuda::kernels
