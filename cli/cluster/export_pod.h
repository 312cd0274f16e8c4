// SPDX-License-Identifier: Apache-2.0

// The pod that `kubectl ringmaster export JOB` runs: the volumes of a job are on the cluster, so that is
// where its weights are read. Pure function.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::cli {

// From a worker pod of the job (as it is on the cluster, or as wiring makes it): its image, its volumes, its
// security; not its devices, its credentials or its place in the gang. `from` and `to` are paths in the pod.
// It goes with the job.
Json ExportPod(const Json& worker, const std::string& job, const std::string& job_uid,
               const std::string& from, const std::string& to);

// The container of a pod that trains: "worker", or its first one.
const Json& WorkerContainerOf(const Json& pod);

}  // namespace ringmaster::cli
