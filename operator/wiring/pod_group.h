// SPDX-License-Identifier: Apache-2.0

// All pods of an attempt or none: what each provider wants beside the pods and on them. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// The provider's group; null where it has none.
Json GroupOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

// Marks the pod as one of the group.
void JoinGroup(const api::TrainingJob& job, const Context& context, Json& pod);

}  // namespace ringmaster::wiring
