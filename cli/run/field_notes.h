// SPDX-License-Identifier: Apache-2.0

// Notes of `ringmaster run` about a manifest that was written for a cluster.
#pragma once

#include <string>
#include <vector>

#include "api/training_job.h"

namespace ringmaster::cli {

// Returns a note for each field that has no effect on one machine.
std::vector<std::string> FieldsWithoutEffect(const api::Spec& spec);

}  // namespace ringmaster::cli
