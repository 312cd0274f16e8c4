// SPDX-License-Identifier: Apache-2.0

// Rules over several fields, such as min <= max. Each declares the fields that it reads, and is skipped when
// one of them already has a problem, so that one mistake gives one message. Pure function.
#pragma once

#include <vector>

#include "api/load.h"

namespace ringmaster::api {

// Appends to `problems`, which has the known problems of single fields.
void CheckRules(const TrainingJob& job, std::vector<Problem>& problems);

}  // namespace ringmaster::api
