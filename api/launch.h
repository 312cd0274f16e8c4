// SPDX-License-Identifier: Apache-2.0

// How the ranks of a job start, and how long they have to stop. Pure functions.
#pragma once

#include <cstdint>

#include "api/training_job.h"

namespace ringmaster::api {

// Whether an agent in each pod starts the command of `workers.template` as ranks: a framework other than
// native with `launch.kind: ranks`.
bool RunsPrograms(const Spec& spec);

// Whether ranks restart in their pods: an agent keeps them, and a coordinator orders when they start. Only a
// lost pod is created again. Otherwise a failure replaces all pods.
bool RestartsInPlace(const Spec& spec);

// Returns the time that a pod has from SIGTERM to SIGKILL: `checkpoint.gracePeriodSeconds`, or more when its
// agent gives the ranks more time to stop.
int32_t GraceSeconds(const Spec& spec);

}  // namespace ringmaster::api
