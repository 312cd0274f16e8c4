// SPDX-License-Identifier: Apache-2.0

// Where pods may be scheduled: excluded and avoided nodes, topology, tolerations. Added to the template's
// constraints, never in their place. Pure function.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

void Place(const api::TrainingJob& job, const Context& context, Json& spec);

}  // namespace ringmaster::wiring
