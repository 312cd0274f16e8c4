// SPDX-License-Identifier: Apache-2.0

// Initial parameters as a pure function of (seed, tensor, element), so that the values do not depend on which
// process or thread computes them.
#pragma once

#include <cstdint>
#include <span>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

// Initial values of a tensor: normally distributed; with deviation 0 the constant `mean`.
struct Initial {
  float mean = 0;
  float deviation = 0;
};

// Fills `values`, tensor number `tensor`. Each pair of elements comes from one keyed random number by the
// Box-Muller transform.
void FillNormal(uint64_t seed, uint64_t tensor, const Initial& initial, std::span<float> values);

// Fills all tensors of the arena; initial[i] belongs to layout.parameters[i]. Padding becomes 0.
void InitialiseArena(uint64_t seed, const Layout& layout, std::span<const Initial> initial,
                     std::span<float> params);

}  // namespace ringmaster::engine
