// SPDX-License-Identifier: Apache-2.0

// A TrainingJob of the API as a record. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// The spec.managedBy of jobs that are ours.
inline constexpr const char* kManager = "ringmaster.dev/operator";

// Null: somebody else manages it. A job that does not fit is a record with a problem, so that it can be told.
// `before`: what was known of it; a spec of the same generation is not read again.
std::shared_ptr<const JobRecord> DecodeJob(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const JobRecord>& before,
                                           const WallClock& clock, Time now);

}  // namespace ringmaster::kube
