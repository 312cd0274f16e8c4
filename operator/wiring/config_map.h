// SPDX-License-Identifier: Apache-2.0

// What a worker reads at its start: the job, and who the coordinator's authority is. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kConfigFolder = "/etc/ringmaster";
inline constexpr const char* kJobKey = "job.json";
inline constexpr const char* kAuthorityKey = "ca.crt";

// Where checkpoints go: spec.checkpoint.path, or a folder of our choice when only a volume claim was given.
std::string CheckpointPath(const api::TrainingJob& job);

// The job as workers see it: without the template (variables in it may be secret, and ConfigMaps are not),
// without what only the operator reads, and with the checkpoint path that is mounted.
api::TrainingJob JobForWorkers(const api::TrainingJob& job);

Json ConfigMapOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

}  // namespace ringmaster::wiring
