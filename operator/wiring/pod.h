// SPDX-License-Identifier: Apache-2.0

// The default pod that the user's template is merged over, and the corrections after the merge. Pure
// functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kTokenFile = "token";
inline constexpr const char* kTerminationLog = "/dev/termination-log";

// Returns the defaults: {metadata, spec} with one container, named as in `user`.
Json PodDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, const Template& user);

// Removes the defaults that the template made useless or contradictory from the merged pod: default volumes
// without a mount, and default restrictions that conflict with the template's settings.
void PruneDefaults(const Template& user, Json& pod);

// Returns the container of `pod` that trains. REQUIRES: there is one named `name`.
Json& WorkerContainer(Json& pod, const std::string& name);

}  // namespace ringmaster::wiring
