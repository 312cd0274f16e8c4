// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/eviction.h"

#include "api/launch.h"
#include "operator/wiring/config_map.h"

namespace ringmaster::wiring {

bool MayBeMoved(const api::TrainingJob& job) {
  const api::Workers& workers = job.spec.workers;
  return api::RunsTrainers(job.spec) && workers.EffectiveMin() < workers.EffectiveMax() &&
         !CheckpointPath(job).empty();
}

void AddEvictionDefaults(const api::TrainingJob& job, Json& metadata) {
  // Without the first, cluster-autoscaler keeps the node: it does not know the pod's owner, and the volume of
  // the agent could hold data.
  metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] =
      MayBeMoved(job) ? "true" : "false";
  if (!MayBeMoved(job)) metadata["annotations"]["karpenter.sh/do-not-disrupt"] = "true";
}

}  // namespace ringmaster::wiring
