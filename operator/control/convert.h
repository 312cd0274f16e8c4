// SPDX-License-Identifier: Apache-2.0

// From the API object to the core's view of it: the only place that knows both. Pure.
#pragma once

#include <string>

#include "api/training_job.h"
#include "operator/control/backend.h"
#include "operator/core/job.h"

namespace ringmaster::control {

// `job` was validated and has its defaults. `uid` and `spec_generation` are the store's.
core::Job FromApi(const api::TrainingJob& job, const std::string& uid, int64_t spec_generation);

Key KeyOf(const api::TrainingJob& job);

}  // namespace ringmaster::control
