// SPDX-License-Identifier: Apache-2.0

// What a pod is told by its environment: our agent (worker/agent/config.h is the reader), and what another
// framework starts by (frameworks.h). Pure function.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// The list `env` of the container that trains. `cpu_limit`: whether it has one; then the trainer uses that
// many threads.
Json AgentEnvironment(const api::TrainingJob& job, int32_t rank, const Context& context, bool cpu_limit);

}  // namespace ringmaster::wiring
