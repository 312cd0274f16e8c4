// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/service.h"

#include <utility>

#include "api/launch.h"
#include "operator/wiring/names.h"

namespace ringmaster::wiring {

bool NeedsService(const api::TrainingJob& job) { return !api::RestartsInPlace(job.spec); }

// Whenever a selected pod starts, becomes ready or ends, the cluster rewrites the addresses of all selected
// pods, twice. For a gang of hundreds that costs more than its pods. So the Service selects one attempt only,
// not the pods of the previous attempt that are ending.
Json ServiceOf(const api::TrainingJob& job, const std::string& job_uid, int64_t attempt) {
  Json service = NewObject("v1", "Service", ServiceName(job.metadata.name), job, job_uid);
  const Json selector = {{kJobLabel, job.metadata.name}, {kAttemptLabel, std::to_string(attempt)}};
  service["spec"] = {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", selector}};
  return service;
}

}  // namespace ringmaster::wiring
