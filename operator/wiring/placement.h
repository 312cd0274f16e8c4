// SPDX-License-Identifier: Apache-2.0

// Where pods may go: off excluded nodes, close together, onto nodes that are tainted for GPUs. Added to what
// the template says, never instead of it. Pure functions.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

void Place(const api::TrainingJob& job, const Context& context, Json& spec);

}  // namespace ringmaster::wiring
