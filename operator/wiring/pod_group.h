// SPDX-License-Identifier: Apache-2.0

// Gang scheduling: each provider's gang object, and what it needs on the pods. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Returns the provider's gang object; null when the provider has none.
Json GroupOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

// Marks the pod as a member of the gang.
void JoinGroup(const api::TrainingJob& job, const Context& context, Json& pod);

}  // namespace ringmaster::wiring
