// SPDX-License-Identifier: Apache-2.0

#include <bit>
#include <cmath>

#include "worker/compute/engine/kernels/convert.h"

namespace ringmaster::engine::kernels::reference {

void ToBf16(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      const float value = x[r * ldx + i];
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      uint32_t upper = bits >> 16;
      const uint32_t lower = bits & 0xffffu;
      if (std::isnan(value)) {
        upper |= 0x40u;
      } else if (lower > 0x8000u || (lower == 0x8000u && (upper & 1u) != 0)) {
        ++upper;
      }
      y[r * ldy + i] = static_cast<uint16_t>(upper);
    }
}

}  // namespace ringmaster::engine::kernels::reference
