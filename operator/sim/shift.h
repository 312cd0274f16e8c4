// SPDX-License-Identifier: Apache-2.0

// Status times are wall-clock times outside of a process, and times of its own clock inside. Pure.
#pragma once

#include "operator/core/status.h"

namespace ringmaster::sim {

// Every time in it is `by` later.
core::Status Shifted(core::Status status, Duration by);

}  // namespace ringmaster::sim
