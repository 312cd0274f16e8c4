// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/convert.h"
#include "worker/compute/engine/kernels/pack.h"

namespace ringmaster::engine::kernels::reference {
namespace {

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

uint16_t Rounded(float value) {
  uint16_t out;
  ToBf16(1, 1, &value, 0, &out, 0);
  return out;
}

// Writes value(k, column) into strips.
template <class Value>
void Pack(int64_t depth, int64_t columns, uint16_t* strips, int64_t stride, const Value& value) {
  for (int64_t c = 0; c < RoundUp(columns, kStripColumns); ++c)
    for (int64_t k = 0; k < RoundUp(depth, kStripDepth); ++k)
      strips[c / kStripColumns * stride + (k / 2 * kStripColumns + c % kStripColumns) * 2 + k % 2] =
          k < depth && c < columns ? Rounded(value(k, c)) : uint16_t{0};
}

}  // namespace

void PackRows(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips, int64_t stride) {
  Pack(depth, columns, strips, stride, [&](int64_t k, int64_t c) { return x[k * ldx + c]; });
}

void PackColumns(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                 int64_t stride) {
  Pack(depth, columns, strips, stride, [&](int64_t k, int64_t c) { return x[c * ldx + k]; });
}

void TransposeToBf16(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < RoundUp(rows, kStripDepth); ++r)
      y[c * ldy + r] = r < rows ? Rounded(x[r * ldx + c]) : uint16_t{0};
}

}  // namespace ringmaster::engine::kernels::reference
