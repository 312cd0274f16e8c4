// SPDX-License-Identifier: Apache-2.0

// Reads from a pod what core/capacity.h needs for scheduling. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "operator/core/capacity/capacity.h"

namespace ringmaster::wiring {

// Returns what the pod takes from its node: the sum of containers and sidecars, or the largest init container
// plus the sidecars before it, whichever is more; plus the overhead of its runtime class.
core::Resources RequestsOf(const Json& pod_spec);

// Returns the templates of the pod's claims of devices, sorted; each as often as the pod names it.
std::vector<std::string> ClaimsOf(const Json& pod_spec);

// Returns the scheduling constraints of a pod {metadata, spec}. A required podAffinity counts only if it
// selects the pod itself, and so the whole gang: it keeps the gang within one domain.
core::PodShape ShapeOf(const Json& pod);

}  // namespace ringmaster::wiring
