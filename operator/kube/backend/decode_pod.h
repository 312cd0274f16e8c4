// SPDX-License-Identifier: Apache-2.0

// Decodes a Pod of the API into a record. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// Returns null for a pod that is not needed: another controller's that has no node or has ended. `before`:
// the stored record; times read once do not change.
//
// The worker's container is the one that an annotation names (wiring::kWorkerAnnotation). Rules:
//  - A container killed for lack of memory has failed, even if its exit code is 0 and the pod "succeeded".
//  - A pod that failed without an exit code (evicted, lost with its node) was killed: 137.
//  - Times of the API server and the kubelet are wall times. Past events are never placed in the future, and
//    a grace period never ends later than its length from now.
std::shared_ptr<const PodRecord> DecodePod(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const PodRecord>& before,
                                           Interners& interners, const WallClock& clock, Time now);

}  // namespace ringmaster::kube
