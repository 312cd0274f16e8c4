// SPDX-License-Identifier: Apache-2.0

// Quantities of the Kubernetes API: "8", "500m", "1.5Gi", "1e3". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "operator/core/capacity.h"

namespace ringmaster::kube {

// In thousandths, rounded up as the API does; what is larger than int64 reads as its largest value. nullopt:
// not a quantity.
std::optional<int64_t> ParseMilli(std::string_view text);

// {"cpu": "500m", ...} in the units of core::Resources. What is no quantity, or negative, is left out.
core::Resources ParseResources(const Json& map);

}  // namespace ringmaster::kube
