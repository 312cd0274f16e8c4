// SPDX-License-Identifier: Apache-2.0

// Reads from a pod's spec what core/capacity.h needs for scheduling. Pure.
#pragma once

#include "base/json.h"
#include "operator/core/capacity.h"

namespace ringmaster::kube {

// Returns what the pod takes from its node: the sum of containers and sidecars, or the largest init container
// plus the sidecars before it, whichever is more; plus the overhead of its runtime class.
core::Resources RequestsOf(const Json& pod_spec);

core::PodShape ShapeOf(const Json& pod_spec);

}  // namespace ringmaster::kube
