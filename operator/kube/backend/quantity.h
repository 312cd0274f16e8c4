// SPDX-License-Identifier: Apache-2.0

// Parses quantities of the Kubernetes API: "8", "500m", "1.5Gi", "1e3". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "operator/core/capacity.h"

namespace ringmaster::kube {

// Returns thousandths, rounded up as the API does, and at most INT64_MAX. nullopt: not a quantity.
std::optional<int64_t> ParseMilli(std::string_view text);

// Returns {"cpu": "500m", ...} in the units of core::Resources. Leaves out invalid and negative quantities.
core::Resources ParseResources(const Json& map);

}  // namespace ringmaster::kube
