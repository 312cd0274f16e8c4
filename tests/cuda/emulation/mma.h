// SPDX-License-Identifier: Apache-2.0

// The functions of worker/compute/cuda/kernels/mma.h on the CPU: lanes exchange their elements and each
// computes its own results. Products of two bfloat16 are exact in float. Sums are in the order of k; a GPU's
// order is different.
#pragma once

#include <cstdint>

#include "tests/cuda/emulation/runner.h"
#include "worker/compute/cuda/kernels/bf16.h"

namespace ringmaster::cuda::kernels {

inline void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        const emulation::CallPlace& place = emulation::CallPlace::current()) {
  using emulation::ParcelOf;
  emulation::Exchange(0xffffffffU, {{a[0], a[1], a[2], a[3], b0, b1}}, place);
  const int g = emulation::current_lane->lane / 4;
  const int t = emulation::current_lane->lane % 4;
  const auto half = [](uint32_t word, int which) {
    return ToFloat(Bf16{static_cast<uint16_t>(which == 0 ? word & 0xffffU : word >> 16)});
  };
  for (int k = 0; k < 16; ++k) {
    const auto upper = static_cast<size_t>(k / 8);
    const emulation::Parcel& left = ParcelOf(g * 4 + k % 8 / 2);
    for (int column = 0; column < 2; ++column) {
      const emulation::Parcel& right = ParcelOf((2 * t + column) * 4 + k % 8 / 2);
      const float b = half(right.words[4 + upper], k % 2);
      d[column] += half(left.words[2 * upper], k % 2) * b;
      d[2 + column] += half(left.words[2 * upper + 1], k % 2) * b;
    }
  }
}

// Calls number(matrix, row pointer of the matrix) for the elements of this lane.
template <class Number>
void ExchangeRows(const Bf16* row, const emulation::CallPlace& place, const Number& number) {
  const auto address = reinterpret_cast<uintptr_t>(row);
  if (address % 16 != 0) emulation::Fail("the address of a matrix row is not a multiple of sixteen");
  emulation::Exchange(0xffffffffU, {{static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32)}},
                      place);
  for (int matrix = 0; matrix < 4; ++matrix) {
    number(matrix, [&](int r) {
      const emulation::Parcel& parcel = emulation::ParcelOf(matrix * 8 + r);
      return reinterpret_cast<const Bf16*>(static_cast<uintptr_t>(parcel.words[0]) |
                                           static_cast<uintptr_t>(parcel.words[1]) << 32);
    });
  }
}

inline void LoadMatrices(uint32_t (&to)[4], const Bf16* row,
                         const emulation::CallPlace& place = emulation::CallPlace::current()) {
  ExchangeRows(row, place, [&](int matrix, const auto& row_of) {
    const Bf16* const from =
        row_of(emulation::current_lane->lane / 4) + emulation::current_lane->lane % 4 * 2;
    to[matrix] = from[0].bits | static_cast<uint32_t>(from[1].bits) << 16;
  });
}

inline void LoadTransposed(uint32_t (&to)[4], const Bf16* row,
                           const emulation::CallPlace& place = emulation::CallPlace::current()) {
  ExchangeRows(row, place, [&](int matrix, const auto& row_of) {
    const int g = emulation::current_lane->lane / 4;
    const int t = emulation::current_lane->lane % 4;
    to[matrix] = row_of(2 * t)[g].bits | static_cast<uint32_t>(row_of(2 * t + 1)[g].bits) << 16;
  });
}

}  // namespace ringmaster::cuda::kernels
