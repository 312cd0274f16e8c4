// SPDX-License-Identifier: Apache-2.0

// Conversion from the API object to core::Job. The only place that depends on both. Pure.
#pragma once

#include <string>

#include "api/training_job.h"
#include "operator/control/backend.h"
#include "operator/core/job.h"

namespace ringmaster::control {

// REQUIRES: `job` is valid and has its defaults. `uid` and `spec_generation` come from the API server.
core::Job FromApi(const api::TrainingJob& job, const std::string& uid, int64_t spec_generation);

// Returns a job with the deadline, the time to live and the cleaning of pods, and nothing else. The values
// may be invalid ones.
core::Job LifecycleOf(const api::Lifecycle& lifecycle);

// Returns the meaning of spec.scheduling.gang.
core::GangMode GangModeOf(const std::string& gang);

// Makes the job one whose agents run the programs of the user: the gang restarts in place.
void KeepPrograms(const api::TrainingJob& job, core::Job* result);

Key KeyOf(const api::TrainingJob& job);

}  // namespace ringmaster::control
