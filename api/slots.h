// SPDX-License-Identifier: Apache-2.0

// How many ranks a pod of a job has: spec.workers.slots as a number. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"

namespace ringmaster::api {

// nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-1g.10gb and their like.
bool IsGpu(const std::string& resource);

// The number that stands there; for "gpu" the GPUs in the limits (else the requests) of the container that
// trains: `worker`, or the first; 1 where none stand, because one is asked for then. GPUs of a resource claim
// are not counted: what a claim holds is known to its driver alone. At least 1. Only of a validated job.
int32_t SlotsOf(const Workers& workers);

// Whether `slots: gpu` stands beside GPUs that come by a claim, which SlotsOf cannot count.
bool SlotsUnknown(const Workers& workers);

}  // namespace ringmaster::api
