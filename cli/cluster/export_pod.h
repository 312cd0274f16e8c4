// SPDX-License-Identifier: Apache-2.0

// The pod that `kubectl ringmaster export JOB` runs. The volumes of a job can only be mounted on the cluster,
// so a pod reads the weights there. Pure functions.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::cli {

// Builds the pod from a worker pod of the job, either an existing one or one built by operator/wiring. Copies
// its image, volumes, security context, resources, runtime class, priority and service account, which quotas
// and admission may require; not its devices, tokens and gang labels. `from` and `to` are
// paths in the pod. The job owns the pod, so deleting the job deletes it.
Json ExportPod(const Json& worker, const std::string& job, const std::string& job_uid,
               const std::string& from, const std::string& to);

// Returns the training container of a worker pod: the one that it was created with; in pods of older versions
// the one named "worker", or else the first.
const Json& WorkerContainerOf(const Json& pod);

}  // namespace ringmaster::cli
