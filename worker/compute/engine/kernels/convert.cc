// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/convert.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {
namespace {

// Prefetch distance in rows: far enough to hide the latency of memory. The hardware prefetcher misses the
// start of the next row.
constexpr int64_t kAheadFloats = 2048;

RM_INLINE uint16_t Round(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

}  // namespace

void ToBf16(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  const int64_t rows_ahead = columns >= kAheadFloats ? 1 : (kAheadFloats + columns - 1) / columns;
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * ldx;
    const float* ahead = r + rows_ahead < rows ? from + rows_ahead * ldx : from;
    uint16_t* to = y + r * ldy;
    int64_t i = 0;
    for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
      __builtin_prefetch(ahead + i);
      __builtin_prefetch(ahead + i + kLanes);
      uint32_t bits[2 * kLanes];
      uint16_t half[2 * kLanes];
      __builtin_memcpy(bits, from + i, sizeof(bits));
      for (int64_t j = 0; j < 2 * kLanes; ++j) half[j] = Round(bits[j]);
      __builtin_memcpy(to + i, half, sizeof(half));
    }
    for (; i < columns; ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, from + i, sizeof(bits));
      to[i] = Round(bits);
    }
  }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
