// SPDX-License-Identifier: Apache-2.0

// The parts of a status that people read in columns, from the numbers in it. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"

namespace ringmaster::api {

// Sets ready ("7/8"), progress.percent ("41%") and progress.eta ("1h05m"). Empty where nothing is known. 100%
// only when all steps are done.
void FillDisplay(Status& status);

// The two largest units: "45s", "3m20s", "1h05m", "2d03h".
std::string ShortDuration(int64_t seconds);

}  // namespace ringmaster::api
