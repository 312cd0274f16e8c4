// SPDX-License-Identifier: Apache-2.0

// Resolves spec.workers.slots to the number of ranks per pod. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"

namespace ringmaster::api {

// Whether the resource is a GPU: nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-1g.10gb and the like.
bool IsGpu(const std::string& resource);

// Returns the number; for "gpu", the number of GPUs in the limits (or else the requests) of the training
// container, which is `worker` or the first one. Without GPUs there the operator requests one, so the result
// is 1. GPUs of a resource claim do not count, because only its driver knows their number. REQUIRES: the job
// is valid.
int32_t SlotsOf(const Workers& workers);

// Whether the training container requests GPUs, other than by a resource claim.
bool RequestsGpus(const Workers& workers);

// Whether the job has `slots: gpu` and gets GPUs by a resource claim, which SlotsOf cannot count.
bool SlotsUnknown(const Workers& workers);

// Returns a resource of the training container that is a part of a GPU or a turn on one: nvidia.com/mig-...,
// nvidia.com/gpu.shared. Empty: it requests none.
std::string SharedGpuOf(const Workers& workers);

}  // namespace ringmaster::api
