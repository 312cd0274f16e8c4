// SPDX-License-Identifier: Apache-2.0

// What a pod's spec says to the scheduler, as far as core/capacity.h knows it. Pure.
#pragma once

#include "base/json.h"
#include "operator/core/capacity.h"

namespace ringmaster::kube {

// What it takes of a node: containers and sidecars together, or the largest init container with the sidecars
// before it, whichever is more; and the overhead of its runtime class.
core::Resources RequestsOf(const Json& pod_spec);

core::PodShape ShapeOf(const Json& pod_spec);

}  // namespace ringmaster::kube
