// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/bias.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {

void AddBias(int64_t rows, int64_t columns, float* c, int64_t ldc, const float* bias, const float* residual,
             int64_t ldr) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c + r * ldc;
    const float* add = residual == nullptr ? nullptr : residual + r * ldr;
    ForLanes(columns, [&](int64_t i, auto lanes) {
      Floats value = Load(row + i, lanes);
      if (bias != nullptr) value = value + Load(bias + i, lanes);
      if (add != nullptr) value = value + Load(add + i, lanes);
      Store(row + i, value, lanes);
    });
  }
}

void StorePanel(int64_t rows, int64_t columns, const float* panel, int64_t ldp, const float* bias,
                const float* residual, int64_t ldr, bool stream, float* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = panel + r * ldp;
    const float* add = residual == nullptr ? nullptr : residual + r * ldr;
    float* to = c + r * ldc;
    const auto value = [&](int64_t i, auto lanes) {
      Floats sum = Load(from + i, lanes);
      if (bias != nullptr) sum = sum + Load(bias + i, lanes);
      if (add != nullptr) sum = sum + Load(add + i, lanes);
      return sum;
    };
    int64_t i = 0;
    if (stream) {
      // Scalar stores up to the next multiple of 64 bytes, then whole cache lines.
      const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float) % kLanes);
      int64_t head = past == 0 ? 0 : kLanes - past;
      if (head > columns) head = columns;
      if (head > 0) Store(to, value(0, SomeLanes{head}), SomeLanes{head});
      for (i = head; i + kLanes <= columns; i += kLanes) Stream(to + i, value(i, AllLanes{}));
    }
    for (; i + kLanes <= columns; i += kLanes) Store(to + i, value(i, AllLanes{}), AllLanes{});
    if (i < columns) Store(to + i, value(i, SomeLanes{columns - i}), SomeLanes{columns - i});
  }
  if (stream) FlushStreams();
}

void ColumnSums(int64_t rows, int64_t columns, const float* x, int64_t ldx, float* sums) {
  // Four vectors of columns at a time, so that every cache line of a row is read as a whole.
  int64_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    Floats total[4] = {Splat(0), Splat(0), Splat(0), Splat(0)};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < 4; ++j) total[j] = total[j] + Load(x + r * ldx + i + j * kLanes, AllLanes{});
    for (int64_t j = 0; j < 4; ++j) Store(sums + i + j * kLanes, total[j], AllLanes{});
  }
  ForLanes(columns - i, [&](int64_t j, auto lanes) {
    Floats total = Splat(0);
    for (int64_t r = 0; r < rows; ++r) total = total + Load(x + r * ldx + i + j, lanes);
    Store(sums + i + j, total, lanes);
  });
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
