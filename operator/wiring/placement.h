// SPDX-License-Identifier: Apache-2.0

// Where pods may be scheduled: excluded and avoided nodes, topology, tolerations. Added to the template's
// constraints, never in their place. Pure function.
//
// Topology: the operator chooses a domain with room for the whole gang before it creates the first pod, and
// the pods get it as a node selector. The scheduler places one pod after another, so with an affinity between
// pods alone the first one chooses the domain for all, however small. The affinity keeps a gang together for
// which the operator knows no domain.
//
// Parameter servers serve: the loss of a zone should leave some of them. They are spread over
// the zones if the template does not spread them, and no topology asks for the opposite.
#pragma once

#include <cstdint>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

void Place(const api::TrainingJob& job, int32_t rank, const Context& context, Json& spec);

}  // namespace ringmaster::wiring
