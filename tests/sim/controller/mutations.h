// SPDX-License-Identifier: Apache-2.0

// Planted mistakes, as decorators around the real parts: the simulator must find every one of them.
#pragma once

#include <functional>
#include <limits>

#include "operator/control/controller.h"

namespace ringmaster::sim {

enum class Mutation : int {
  kNone,
  kNoFreshnessGate,     // decides from a view that has not seen its own writes
  kAmbiguousIsDone,     // takes a write of unknown outcome as done
  kNoDrain,             // does not see pods of other attempts
  kForgetsToCharge,     // counts a failure and does not charge it
  kActsBeforeCounting,  // removes a failed pod before its failure is written down
  kIgnoresBackoff,
  kForgetsToRequeue,
  kReusesAttempt,     // resumes under the attempt that was stopped
  kLeavesPodsBehind,  // does nothing after the end
  kMixesDecision,     // writes status and acts in one decision
  kRevivesEndedJob,
  kActsBeforeAttempt,  // makes the pods of an attempt before it is written down
  kUnlimitedBudget,
  kAlwaysForce,          // never lets a pod end in peace
  kIgnoresStop,          // goes on making pods after a stop was decided
  kNoOverstay,           // waits for ever for a pod on a dead node
  kReleasesWithoutRoom,  // takes the gates away whether or not there is room
  kReleasesHalfTheGang,  // as many as there is room for
  kForgetsReservations,  // counts released pods only once they have a node
  kKeepsReservations,    // of pods that are gone
  kNeverWithdraws,       // a gang that found half of its nodes keeps them for ever
  kForgetsExclusion,     // makes pods without the excluded nodes
  kIgnoresRefusal,       // asks again at once
  kLosesCounters,        // an attempt begins with restarts at zero
  kNeverRepairsSupport,  // does not look at what stands beside running pods
  kPodsBeforeSupport,    // makes pods before it
  kTrustsClock,          // waits for times that a wrong clock wrote down
  kAgentsObeyAnyLeader,  // no term in the orders to the gang
  kGivesUpNodesEarly,    // takes a node for lost as soon as it is unreachable
  kBooksTimeTwice,
  kChargesLostNodes,  // does not look at the nodes of silent workers
  kForgetsSuspects,   // sends new pods where one has just fallen silent
  kChargesForPeers,   // without waiting for what the drain tells of the nodes of the others
};
inline constexpr int kMutations = 33;
const char* MutationName(Mutation mutation);

using Decider = std::function<core::Decision(const core::Observed&, Time)>;
Decider Mutate(Mutation mutation);

// The view with its gate held open.
class MutatedView final : public control::View {
 public:
  MutatedView(const control::View& view, Mutation mutation) : view_(view), mutation_(mutation) {}
  std::optional<control::Snapshot> Observe(const control::Key& key) const override {
    return view_.Observe(key);
  }
  control::Revision Seen(control::Kind kind, const control::Key& key) const override {
    if (mutation_ == Mutation::kNoFreshnessGate) return std::numeric_limits<control::Revision>::max();
    return view_.Seen(kind, key);
  }
  std::vector<control::Key> Keys() const override { return view_.Keys(); }

 private:
  const control::View& view_;
  const Mutation mutation_;
};

}  // namespace ringmaster::sim
