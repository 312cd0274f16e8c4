// SPDX-License-Identifier: Apache-2.0

// Random jobs with random templates, from a seed. Everything in them is something the API server could have
// let through; a second function makes templates of any shape at all.
#pragma once

#include <cstdint>

#include "api/training_job.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Values of variables that must not leave the pod contain this.
inline constexpr const char* kSecretText = "s3cr3t";

api::TrainingJob RandomJob(uint64_t seed);
Context RandomContext(uint64_t seed, const api::TrainingJob& job);

// A tree of the names that occur in templates, with values of random kinds.
Json RandomTree(uint64_t seed);

}  // namespace ringmaster::wiring
