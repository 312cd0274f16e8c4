// SPDX-License-Identifier: Apache-2.0

// What happens to the launchers that a job's commands call (launchers.h): they get what they need, or the job
// is refused, because each pod would train alone, or wait for ever. docs/reference/launchers.md has the
// table. Pure function.
#pragma once

#include <functional>
#include <string>

#include "api/training_job.h"

namespace ringmaster::api {

// Calls `add` with the path and the message of each problem. REQUIRES: spec.framework, spec.launch,
// spec.workers and spec.roles have no other problem.
void CheckLaunchers(const TrainingJob& job, const std::function<void(std::string, std::string)>& add);

}  // namespace ringmaster::api
