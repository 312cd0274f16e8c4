// SPDX-License-Identifier: Apache-2.0

// The bfloat16 type: the upper half of a float, rounded to nearest even. One type for host and device code,
// shared by kernels compiled by nvcc and callers compiled by g++.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define RM_HOST_DEVICE __host__ __device__
#else
#define RM_HOST_DEVICE
#endif

namespace ringmaster::cuda {

struct alignas(2) Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};

RM_HOST_DEVICE inline float ToFloat(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}
RM_HOST_DEVICE inline float ToFloat(float value) { return value; }

// Rounds to nearest even; NaN stays NaN, as in worker/compute/engine/kernels/convert.h.
RM_HOST_DEVICE inline Bf16 RoundToBf16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  return {static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded)};
}

// Converts a float to the type of an activation.
template <class T>
RM_HOST_DEVICE inline T FromFloat(float value) {
  if constexpr (sizeof(T) == 2) {
    return RoundToBf16(value);
  } else {
    return value;
  }
}

}  // namespace ringmaster::cuda
