// SPDX-License-Identifier: Apache-2.0

// Plans a recovery: from the members' statuses to the step at which the next generation starts, and the
// members that hold its state. Pure functions.
//
// Members of one generation differ by at most one committed step: a rank cannot finish step s+1 without the
// gradients of all ranks for s+1, and a rank sends those only after it has committed s. Let smax be the
// newest step:
//   - all members at smax: all of them are sources;
//   - some at smax - 1, and every leader can undo one step: the leaders roll back, all are sources;
//   - some at smax - 1, and a leader cannot undo: the leaders are the sources, the others fetch;
//   - a member older than smax - 1 is left over from an earlier generation: it fetches.
// Members at the same step must hold the same bits. A minority is corrupt and fetches. Leaders that are to go
// back vote on step smax - 1 with the state that they would go back to. Without a majority it is unknown
// which state is right, and the plan fails; but laggards that differ among themselves fetch from leaders that
// cannot go back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

struct RecoveryPlan {
  int64_t start_step = -1;      // -1: no member holds a usable state
  std::vector<size_t> sources;  // indices into the statuses, ascending
  std::vector<size_t> corrupt;  // differ from the majority at their step
  std::vector<size_t> stale;    // hold a state that is too old to use
  uint64_t params_hash = 0;     // of the state of start_step
  uint64_t optimizer_hash = 0;
  std::string failure;         // not empty: states differ and no version has a majority
  std::vector<size_t> differ;  // then: the members that hold them
  bool operator==(const RecoveryPlan&) const = default;
};

// `checkpoint_step`: the newest published checkpoint, -1 for none. States older than it are not used.
RecoveryPlan PlanRecovery(const std::vector<MemberStatus>& statuses, int64_t checkpoint_step);

}  // namespace ringmaster::rendezvous
