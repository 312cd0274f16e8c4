// SPDX-License-Identifier: Apache-2.0

// The headless Service that gives every worker a DNS name before it is ready: workers must find each other to
// become ready. Pure function.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

Json ServiceOf(const api::TrainingJob& job, const std::string& job_uid, int64_t attempt);

}  // namespace ringmaster::wiring
