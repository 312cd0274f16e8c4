// SPDX-License-Identifier: Apache-2.0

// Computes the columns that `kubectl get` prints from the numbers of a status. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"

namespace ringmaster::api {

// Sets ready ("7/8"), progress.percent ("41%") and progress.eta ("1h05m"). An unknown value gives an empty
// text. The percentage is 100% only when all steps are committed.
void FillDisplay(Status& status);

// Formats a duration with its two largest units: "45s", "3m20s", "1h05m", "2d03h".
std::string ShortDuration(int64_t seconds);

}  // namespace ringmaster::api
