// SPDX-License-Identifier: Apache-2.0

// Decodes a TrainingJob of the API into a record. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// The spec.managedBy of jobs that this operator runs.
inline constexpr const char* kManager = "ringmaster.dev/operator";

// Returns null if another controller manages the job. An invalid job becomes a record with a problem, which
// its status then reports. `before`: the stored record; a spec of the same generation is not parsed again.
// `autoscaler`: jobs that preempt nothing have spec.scheduling.autoscaler.
std::shared_ptr<const JobRecord> DecodeJob(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const JobRecord>& before,
                                           const WallClock& clock, Time now, bool autoscaler = false);

}  // namespace ringmaster::kube
