// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/eviction.h"

#include "api/launch.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/program.h"

namespace ringmaster::wiring {

bool MayBeMoved(const api::TrainingJob& job) {
  const api::Workers& workers = job.spec.workers;
  return api::RunsTrainers(job.spec) && workers.EffectiveMin() < workers.EffectiveMax() &&
         !CheckpointPath(job).empty();
}

void AddEvictionDefaults(const api::TrainingJob& job, Json& metadata) {
  if (!MayBeMoved(job)) {
    metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false";
    metadata["annotations"]["karpenter.sh/do-not-disrupt"] = "true";
  } else if (api::RunsCommand(job.spec)) {
    // cluster-autoscaler keeps a node for the contents of an emptyDir. This one only has the agent.
    metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"] = kAgentVolume;
  }
}

}  // namespace ringmaster::wiring
