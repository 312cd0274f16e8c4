// SPDX-License-Identifier: Apache-2.0

// The ConfigMap that a worker reads at its start: the job (of trainers) and the coordinator's certificate
// authority. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kConfigFolder = "/etc/ringmaster";
inline constexpr const char* kJobKey = "job.json";
inline constexpr const char* kAuthorityKey = "ca.crt";

// Returns the folder at which spec.checkpoint.volumeClaim is mounted: spec.checkpoint.path, or a default when
// only a volume claim is given.
std::string CheckpointMount(const api::TrainingJob& job);

// Returns the folder for checkpoints: spec.checkpoint.path, or a folder of this job in the mount, since jobs
// share claims.
std::string CheckpointPath(const api::TrainingJob& job);

// Returns the job as workers see it: without the user's template (its variables may be secret, and a
// ConfigMap is not), without the fields that only the operator reads, and with the mounted checkpoint path.
api::TrainingJob JobForWorkers(const api::TrainingJob& job);

// Returns the keys of the ConfigMap; none: the job has no ConfigMap.
std::vector<std::string> ConfigKeys(const api::TrainingJob& job, const Context& context);

// Returns null when the job has none.
Json ConfigMapOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

}  // namespace ringmaster::wiring
