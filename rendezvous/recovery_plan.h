// SPDX-License-Identifier: Apache-2.0

// From the members' statuses to the step at which the next generation starts, and who holds it. Pure.
//
// Members of one generation differ by at most one committed step: a rank cannot finish step s+1 without
// everyone's gradients for s+1, and nobody sends those before it has committed s. So with smax the newest
// step:
//   - all at smax: everyone is a source;
//   - some at smax - 1, and every leader can undo one step: the leaders go back, everyone is a source;
//   - some at smax - 1, and a leader cannot undo: the leaders are the sources, the others fetch;
//   - older than smax - 1: left over from an earlier life; it fetches.
// Members at the same step must agree bit for bit. The minority fetches (it is corrupt); without a majority
// nobody can say who is right, and the plan has failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

struct RecoveryPlan {
  int64_t start_step = -1;      // -1: nobody holds usable state
  std::vector<size_t> sources;  // indices into the statuses, rising
  std::vector<size_t> corrupt;  // disagree with the majority at their step
  std::vector<size_t> stale;    // hold a state that nobody can use
  std::string failure;          // not empty: states disagree with no majority
  bool operator==(const RecoveryPlan&) const = default;
};

// `checkpoint_step`: newest published checkpoint known of, -1 for none. States older than it are worth less
// than the checkpoint and are not used.
RecoveryPlan PlanRecovery(const std::vector<MemberStatus>& statuses, int64_t checkpoint_step);

}  // namespace ringmaster::rendezvous
