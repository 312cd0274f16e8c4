// SPDX-License-Identifier: Apache-2.0

// The core's status as the API holds it, and back. Pure: the clock is handed in.
//
// Everything in core::Ledger and core::Display survives: DecodeStatus(EncodeStatus(s)) == s, for times that
// are whole microseconds and texts within the bounds of the API (longer ones are cut, or the API server would
// refuse the whole status). Programs and people read the conditions and numbers; what only the operator needs
// is in `ledger`.
#pragma once

#include <string>

#include "api/training_job.h"
#include "operator/core/job.h"
#include "operator/core/status.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {

// `job`: for what is derived from the wish (selector, time left).
api::Status EncodeStatus(const core::Status& status, const api::TrainingJob& job, const WallClock& clock);

// Members that are not what they should be read as unset.
core::Status DecodeStatus(const api::Status& status, const WallClock& clock);

// A status is written by one process and read by another, whose wall clocks may differ: nothing in the past
// may lie in the future, and nothing in the future further ahead than the job allows.
void ClampTimes(core::Status& status, const core::Job& job, Time now);

}  // namespace ringmaster::kube
