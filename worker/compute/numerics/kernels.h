// SPDX-License-Identifier: Apache-2.0

// The inner loops of the exact and the fast numerics, compiled once per instruction set
// (engine/cpu_variants.h). Internal to numerics and its tests, which run every variant that this CPU supports
// and compare the bits.
//
// Those of the exact numerics run in the scope of a KeepSubnormals (base/subnormals.h): trainers flush
// subnormals elsewhere.
//
// A kernel works on one block, shape (kBlock), unless it takes a count. Pointers may be equal (in place) but
// must not overlap partly. Thread-safe: the kernels have no state.
#pragma once

#include <cstdint>
#include <span>

namespace ringmaster::numerics {

struct Kernels {
  const char* name;
  // Returns the largest |value| as the bits of a float without sign. Such bits order like the values, with
  // infinities and NaNs last.
  uint32_t (*max_bits)(const float* values);
  // sums = rint(values * scale), or sums += rint(values * scale); ties to even.
  void (*quantise)(const float* values, float scale, int32_t* sums);
  void (*quantise_add)(const float* values, float scale, int32_t* sums);
  // The same with two limbs of shape (2, kBlock). With x = values * scale and h = rint(x), limb 0 is h and
  // limb 1 is rint((x - h) * limb_scale); the difference and the product are exact.
  void (*quantise_wide)(const float* values, float scale, float limb_scale, int32_t* sums);
  void (*quantise_wide_add)(const float* values, float scale, float limb_scale, int32_t* sums);
  // out[i] = float(sums[i] * factor).
  void (*decode)(const int32_t* sums, double factor, float* out);
  // out[i] = float((limb 0 * limb_scale + limb 1) * factor). `out` must not overlap `sums`.
  void (*decode_wide)(const int32_t* sums, double factor, double limb_scale, float* out);
  // Returns the sum of squares of values, shape (count). Element i is added to lane i mod 16; the lanes are
  // then added by halves.
  double (*sum_squares)(const float* values, int64_t count);
  // Fast numerics, shape (count): sums += values, and out = values * factor.
  void (*add)(const float* values, int64_t count, float* sums);
  void (*multiply)(const float* values, int64_t count, float factor, float* out);
};

// Returns the variants that this CPU supports, fastest first; the last one is plain C++.
std::span<const Kernels> AvailableKernels();

}  // namespace ringmaster::numerics
