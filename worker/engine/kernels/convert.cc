#include "worker/engine/kernels/convert.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void ToBf16(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * ldx;
    uint16_t* to = y + r * ldy;
    for (int64_t i = 0; i < columns; ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, from + i, sizeof(bits));
      const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      const uint32_t quiet = (bits >> 16) | 0x40u;
      to[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
  }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
