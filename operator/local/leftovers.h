// SPDX-License-Identifier: Apache-2.0

// Ends what an earlier run has left: SIGKILL of the run, of its warden and of its agents at the same moment
// leaves the processes that programs have started (warden.h).
#pragma once

#include <string>

#include "base/result.h"

namespace ringmaster::local {

// Kills all processes that have `variable` ("NAME=value") in their environment, except this one, and waits
// for their end. REQUIRES: no such process belongs to a run that is alive. Errors: kUnavailable when one does
// not end, with its pid.
Status EndLeftovers(const std::string& variable);

}  // namespace ringmaster::local
