// SPDX-License-Identifier: Apache-2.0

// Initial parameters as a pure function of (seed, tensor, element): nothing depends on who computes which
// part.
#pragma once

#include <cstdint>
#include <span>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

// Normal with mean `mean` and standard deviation `deviation`; 0 gives the constant `mean`.
struct Initial {
  float mean = 0;
  float deviation = 0;
};

// Element pairs come from one keyed random number each, by Box and Muller's transformation.
void FillNormal(uint64_t seed, uint64_t tensor, const Initial& initial, std::span<float> values);

// All tensors of the arena; initial[i] belongs to layout.parameters[i]. Padding becomes 0.
void InitialiseArena(uint64_t seed, const Layout& layout, std::span<const Initial> initial,
                     std::span<float> params);

}  // namespace ringmaster::engine
