// SPDX-License-Identifier: Apache-2.0

// The annotations by which cluster-autoscaler and Karpenter decide whether to move a pod to save a node. Pure
// functions.
#pragma once

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

// Whether a worker may be moved without need, because no step is lost: a trainer of an elastic job hands over
// and leaves, the others go on, and a checkpoint covers the case that all of them must leave.
bool MayBeMoved(const api::TrainingJob& job);

// Adds the annotations to the metadata of a pod. Those of the user's template go before them.
void AddEvictionDefaults(const api::TrainingJob& job, Json& metadata);

}  // namespace ringmaster::wiring
