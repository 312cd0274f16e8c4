// SPDX-License-Identifier: Apache-2.0

// GPUs and RDMA devices: what is asked for when the template does not. Limits of the template are never
// replaced. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"

namespace ringmaster::wiring {

// Whether a container requests one as an extended resource.
bool HasGpu(const Json& container);

bool HasCpuLimit(const Template& user);

// `resources` of the container that trains: the RDMA resource, and one GPU where `slots: gpu` stands and the
// template does not say which.
Json DefaultResources(const api::TrainingJob& job, const Template& user);

}  // namespace ringmaster::wiring
