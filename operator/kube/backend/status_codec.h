// SPDX-License-Identifier: Apache-2.0

// Converts the core's status to the API's and back. Pure.
//
// All of core::Ledger and core::Display is preserved: DecodeStatus(EncodeStatus(s)) == s, for times in whole
// microseconds and texts within the API's bounds. The exception is the time left: where it follows from the
// other members, the core does not have it, so DecodeJob (decode_job.h) reads it for programs only. Longer
// texts are truncated, since the API server would reject the whole status. Users and programs read the
// conditions and numbers; `ledger` has what only the operator needs.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/core/job.h"
#include "operator/core/status.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {

// `job`: the source of values derived from the spec (selector, remaining time).
api::Status EncodeStatus(const core::Status& status, const api::TrainingJob& job, const WallClock& clock);

// Reads invalid members as unset.
core::Status DecodeStatus(const api::Status& status, const WallClock& clock);

// Returns the parts of a stored status that this version does not know, in their places; null: none. A newer
// version has written them, and may lead again.
Json UnknownStatus(const Json& status);
// Puts them back into the status that this version writes.
void KeepUnknownStatus(const Json& unknown, Json& status);

// Corrects times for differences between the wall clocks of the writing and the reading process: past times
// are not in the future, and future times are not later than the job allows.
void ClampTimes(core::Status& status, const core::Job& job, Time now);

}  // namespace ringmaster::kube
