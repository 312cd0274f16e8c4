// SPDX-License-Identifier: Apache-2.0

// The pod as it is before the user's template is laid over it, and what must hold after. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kTokenFile = "token";
inline constexpr const char* kTerminationLog = "/dev/termination-log";

// Defaults that the template may change: {metadata, spec} with one container, named as in `user`.
Json PodDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, const Template& user);

// Takes out of a merged pod what the template made pointless or contradictory: our volumes that nothing
// mounts any more, our restrictions that its own settings exclude.
void Reconcile(const Template& user, Json& pod);

// The member of `pod` that trains.
Json& WorkerContainer(Json& pod, const std::string& name);

}  // namespace ringmaster::wiring
