// SPDX-License-Identifier: Apache-2.0

// The inner loops of the exact numerics, once per instruction set. Private to numerics and its tests: the
// tests run every variant this CPU has and demand equal bits.
//
// Every kernel works on one block of kBlock elements unless a count is given. Pointers may be equal (in
// place), never partly overlapping. No state, no thread rules.
#pragma once

#include <cstdint>
#include <span>

namespace ringmaster::numerics {

struct Kernels {
  const char* name;
  // Largest |value| of the block as the bits of a float with the sign cleared: ordered like the values, with
  // infinities and NaNs on top.
  uint32_t (*max_bits)(const float* values);
  // sums (+)= rint(values * scale), ties to even.
  void (*quantise)(const float* values, float scale, int32_t* sums);
  void (*quantise_add)(const float* values, float scale, int32_t* sums);
  // out = float(sum * factor).
  void (*decode)(const int32_t* sums, double factor, float* out);
  // Sum of squares of `count` values: element i goes to lane i mod 16, the lanes are folded by halves.
  double (*sum_squares)(const float* values, int64_t count);
};

// What this CPU can run, fastest first; the last one is plain and always there.
std::span<const Kernels> AvailableKernels();

}  // namespace ringmaster::numerics
