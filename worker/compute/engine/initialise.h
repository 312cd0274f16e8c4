// SPDX-License-Identifier: Apache-2.0

// Initial parameters as a pure function of (seed, tensor, element), so that the values do not depend on which
// process or thread computes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

// Initial values of a tensor: normally distributed; with deviation 0 the constant `mean`.
struct Initial {
  float mean = 0;
  float deviation = 0;
};

// Fills `values`, the elements of tensor number `tensor` from `first` on. Each pair of elements comes from
// one keyed random number by the Box-Muller transform. REQUIRES: `first` is even.
void FillNormal(uint64_t seed, uint64_t tensor, const Initial& initial, std::span<float> values,
                size_t first = 0);

// Fills all tensors of the arena on `threads` threads; initial[i] belongs to layout.parameters[i]. Padding
// becomes 0. Returns early, with garbage, soon after *cancel becomes true. Thread-safe for different arenas.
void InitialiseArena(uint64_t seed, const Layout& layout, std::span<const Initial> initial,
                     std::span<float> params, int threads, const std::atomic<bool>* cancel = nullptr);

}  // namespace ringmaster::engine
