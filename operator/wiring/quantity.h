// SPDX-License-Identifier: Apache-2.0

// Parses and writes quantities of the Kubernetes API: "8", "500m", "1.5Gi", "1e3". Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "operator/core/capacity/capacity.h"

namespace ringmaster::wiring {

// Returns thousandths, rounded up as the API does, and at most INT64_MAX. nullopt: not a quantity.
std::optional<int64_t> ParseMilli(std::string_view text);

// Returns {"cpu": "500m", ...} in the units of core::Resources. Leaves out invalid and negative quantities.
core::Resources ParseResources(const Json& map);

// Returns an amount of core::Resources as a quantity: "1500m", "68719476736".
std::string QuantityText(const std::string& resource, int64_t amount);

}  // namespace ringmaster::wiring
