// SPDX-License-Identifier: Apache-2.0

// A Pod of the API as a record. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// Null: of no interest (somebody else's, without a node or ended). `before`: what was known of it; times that
// were read once stay.
//
// The worker's container is `worker`, or the first. What counts of it:
//  - a container that was killed for memory failed, even when its exit code is 0 and the pod "succeeded";
//  - a pod that failed without an exit code (evicted, lost with its node) was killed: 137;
//  - times of API server and kubelet are wall times; what should lie in the past is never in the future, and
//    the end of a grace never further away than the grace.
std::shared_ptr<const PodRecord> DecodePod(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const PodRecord>& before,
                                           Interners& interners, const WallClock& clock, Time now);

}  // namespace ringmaster::kube
