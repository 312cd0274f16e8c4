// SPDX-License-Identifier: Apache-2.0

// The operator's brain: what to do next about one job. Pure: the same world and time give the same decision,
// and it may be asked as often as one likes.
#pragma once

#include "operator/core/model.h"

namespace ringmaster::core {

// Small safety margins against reports that lag behind what pods do.
inline constexpr Duration kSilentGuard = seconds(3);    // a pod younger than this is not believed silent
inline constexpr Duration kAbsenceGuard = seconds(10);  // until then every agent may be on its way
// A node that is lost is known to be within less than a minute of its last sign of life, as the cluster goes:
// for so long one on which a worker fell silent is under suspicion.
inline constexpr Duration kSuspicionPeriod = seconds(90);
inline constexpr Duration kExitGuard = seconds(2);        // exit 0: the report of the finish may still come
inline constexpr Duration kShutdownGuard = seconds(3);    // after success agents end by themselves
inline constexpr Duration kDrainGrace = seconds(30);      // at most, for pods of an attempt that is given up
inline constexpr Duration kOverstayMargin = seconds(10);  // after its grace a pod is removed by force

// How often the status is written for conditions that change while the phase stays; and for how long at least
// a gang that is being made is left alone: its status is written when its pods have not moved for so long, or
// when all run.
inline constexpr Duration kDisplayInterval = seconds(1);
inline constexpr Duration kSettlePeriod = seconds(2);
inline constexpr Duration kMaxSettlePeriod = seconds(30);  // after its first pod was made

// A pod's waiting_reason when the scheduler finds no node.
inline constexpr const char* kUnschedulable = "Unschedulable";

Decision Decide(const Observed& observed, Time now);

}  // namespace ringmaster::core
