// SPDX-License-Identifier: Apache-2.0

// Random jobs with random templates, from a seed. The API server could have accepted everything in them.
// RandomTree makes templates of any shape.
#pragma once

#include <cstdint>

#include "api/training_job.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Variables that must not leave the pod contain this text.
inline constexpr const char* kSecretText = "s3cr3t";

api::TrainingJob RandomJob(uint64_t seed);
Context RandomContext(uint64_t seed, const api::TrainingJob& job);

// Returns a tree of the names that occur in templates, with values of random types.
Json RandomTree(uint64_t seed);

}  // namespace ringmaster::wiring
