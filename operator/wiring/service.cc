// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/service.h"

#include <utility>

#include "operator/wiring/names.h"

namespace ringmaster::wiring {

namespace {

// Our own workers find each other by the coordinator; what those of others look up is theirs to choose.
bool NeedsOnlyRankZero(const api::TrainingJob& job) { return job.spec.framework == "native"; }

}  // namespace

// Each time one of the pods that it selects starts, is ready or ends, the cluster writes down the addresses
// of all of them anew, twice: for a gang of hundreds that is more work than its pods. So it selects those of
// one attempt, and not those of the one before while they end.
Json ServiceOf(const api::TrainingJob& job, const std::string& job_uid, int64_t attempt) {
  Json service = NewObject("v1", "Service", ServiceName(job.metadata.name), job, job_uid);
  Json selector = {{kJobLabel, job.metadata.name}, {kAttemptLabel, std::to_string(attempt)}};
  if (NeedsOnlyRankZero(job)) selector[kRankLabel] = "0";
  service["spec"] = {
      {"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", std::move(selector)}};
  return service;
}

}  // namespace ringmaster::wiring
