// SPDX-License-Identifier: Apache-2.0

// The environment variables of a pod: those of the agent (read by worker/agent/trainer/config.h) and those of
// other frameworks (frameworks.h). Pure function.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Returns the list `env` of the container that trains. `cpu_limit`: whether the container has a CPU limit,
// which then sets the trainer's number of threads.
Json AgentEnvironment(const api::TrainingJob& job, int32_t rank, const Context& context, bool cpu_limit);

}  // namespace ringmaster::wiring
