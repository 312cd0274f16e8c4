// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/rng.h"

namespace ringmaster::engine {

void FillNormal(uint64_t seed, uint64_t tensor, const Initial& initial, std::span<float> values) {
  if (initial.deviation == 0) {
    std::fill(values.begin(), values.end(), initial.mean);
    return;
  }
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint64_t bits = KeyedRandom(seed, tensor, i / 2);
    const double u = (static_cast<double>(bits >> 32) + 1.0) * 0x1.0p-32;  // (0, 1]
    const double angle = static_cast<double>(bits & 0xffffffffu) * 0x1.0p-32 * 2 * std::numbers::pi;
    const double radius = std::sqrt(-2 * std::log(u)) * initial.deviation;
    values[i] = static_cast<float>(initial.mean + radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(initial.mean + radius * std::sin(angle));
  }
}

void InitialiseArena(uint64_t seed, const Layout& layout, std::span<const Initial> initial,
                     std::span<float> params) {
  CHECK(initial.size() == layout.parameters.size());
  CHECK(static_cast<int64_t>(params.size()) == layout.elements);
  std::fill(params.begin(), params.end(), 0.0f);
  for (size_t i = 0; i < initial.size(); ++i) {
    const Parameter& parameter = layout.parameters[i];
    FillNormal(seed, i, initial[i],
               params.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size)));
  }
}

}  // namespace ringmaster::engine
