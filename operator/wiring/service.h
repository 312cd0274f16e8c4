// SPDX-License-Identifier: Apache-2.0

// The headless Service that gives every worker a DNS name before it is ready: workers must find each other to
// become ready. Where agents keep the workers (api::RestartsInPlace) the coordinator passes on each other's
// addresses: such jobs have no Service, which would cost the cluster several writes whenever a worker starts
// or ends. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

bool NeedsService(const api::TrainingJob& job);

// REQUIRES: NeedsService.
Json ServiceOf(const api::TrainingJob& job, const std::string& job_uid, int64_t attempt);

}  // namespace ringmaster::wiring
