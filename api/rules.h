// SPDX-License-Identifier: Apache-2.0

// Rules that several fields share: min <= max, the model fits the data. Each names the fields it reads, and
// is skipped when one of them has a problem already: one mistake, one message. Pure function.
#pragma once

#include <vector>

#include "api/load.h"

namespace ringmaster::api {

// Appends to `problems`, which holds what is already known to be wrong.
void CheckRules(const TrainingJob& job, std::vector<Problem>& problems);

}  // namespace ringmaster::api
