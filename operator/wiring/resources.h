// SPDX-License-Identifier: Apache-2.0

// GPUs and RDMA devices: the requests that the template does not make. Limits of the template are never
// replaced. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"

namespace ringmaster::wiring {

// Whether the container requests a GPU as an extended resource.
bool HasGpu(const Json& container);

bool HasCpuLimit(const Template& user);

// Returns `resources` of the container that trains: the RDMA resource, and one GPU for `slots: gpu` when the
// template requests none.
Json DefaultResources(const api::TrainingJob& job, const Template& user);

}  // namespace ringmaster::wiring
