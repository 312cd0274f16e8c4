// SPDX-License-Identifier: Apache-2.0

// Planted bugs, as decorators around the real parts. The simulator must find every one of them.
#pragma once

#include <functional>
#include <limits>

#include "operator/control/controller.h"

namespace ringmaster::sim {

enum class Mutation : int {
  kNone,
  kNoFreshnessGate,     // decides from a view without its own writes
  kAmbiguousIsDone,     // takes a write of unknown outcome as done
  kNoDrain,             // ignores pods of other attempts
  kForgetsToCharge,     // counts a failure and does not charge it
  kActsBeforeCounting,  // removes a failed pod before its failure is written
  kIgnoresBackoff,
  kForgetsToRequeue,
  kReusesAttempt,     // resumes with the stopped attempt
  kLeavesPodsBehind,  // does nothing after the end
  kMixesDecision,     // writes status and acts in one decision
  kRevivesEndedJob,
  kActsBeforeAttempt,  // creates the pods of an attempt before it is written
  kUnlimitedBudget,
  kAlwaysForce,          // never grants a grace period
  kIgnoresStop,          // creates pods after a stop was decided
  kNoOverstay,           // waits without a limit for a pod on a lost node
  kReleasesWithoutRoom,  // removes gates without room
  kReleasesHalfTheGang,  // releases half of the pods
  kNeverWithdraws,       // a gang with half of its nodes keeps them
  kForgetsExclusion,     // creates pods without the excluded nodes
  kIgnoresRefusal,       // retries at once
  kLosesCounters,        // an attempt starts with zero restarts
  kNeverRepairsSupport,  // ignores damage to the supporting objects of running pods
  kPodsBeforeSupport,    // creates pods before the supporting objects
  kTrustsClock,          // waits for times that a wrong clock wrote
  kAgentsObeyAnyLeader,  // orders to the gang have no term
  kGivesUpNodesEarly,    // treats an unreachable node as lost at once
  kGivesUpHeardNodes,    // believes the API server although the coordinator hears the worker
  kBooksTimeTwice,
  kChargesLostNodes,       // ignores the nodes of unresponsive workers
  kForgetsSuspects,        // does not avoid suspected nodes
  kChargesForPeers,        // charges a failure without waiting for the drain
  kChargesRestarts,        // charges workers whose node started again
  kForgetsFirstSize,       // a new job takes another size before its first status is written
  kWithdrawsWaitingGangs,  // even those that hold nothing
  kKeepsRefusedParts,      // leaves nodes to a gang of which some pods are refused
  kWithdrawsForSlowNodes,  // also those whose pods wait for nodes and hold none
  kReleasesEarly,          // lets go of a pod before its end is accounted
  kHoldsStrays,            // never lets go of the pods of deleted jobs
  kKillsOrphans,           // deletes pods that run on without their job
  kAnyRankDecides,         // a job succeeds with any rank, where rank 0 decides
  kIgnoresAdmission,       // creates pods of a job in a queue without asking Kueue
  kClearsTooEarly,         // gives up the quota while there are pods
  kNeverClears,            // keeps the quota of an evicted job
  kHoldsWorkloads,         // never lets go of Workloads
  kIgnoresEviction,        // runs on
  kNeverResumes,           // a preempted job stays stopped
  kNeverGrowsAgain,        // a preempted job keeps fewer workers when the other one runs
  kPreemptsBelowMin,       // an elastic job shrinks to less than its minimum
  kPreemptsByForce,        // a preempted job gets no time for a checkpoint
  kScattersGang,           // a preferred topology is ignored when places are reserved
  kForgetsDomain,          // pods may use other domains than those of their places
  kLeavesStranded,         // pods wait for a domain that has no room
  kGrowsUngranted,         // starts workers before Kueue has admitted the larger slice
  kIgnoresDefaultQueue,    // starts a job without a label as if its namespace had no queue
  kPreparesWaitingGangs,   // creates the supporting objects of a gang that waits for room
  kForgetsAges,            // the same from the second leader on, for gangs of one priority
  kRunsFinishedWork,       // ignores the notes of agents that the job is finished
};
// All but the first, which changes nothing.
inline constexpr int kMutations = static_cast<int>(Mutation::kRunsFinishedWork);
const char* MutationName(Mutation mutation);

using Decider = std::function<core::Decision(const core::Observed&, Time)>;
Decider Mutate(Mutation mutation);

// A view that can disable the freshness gate.
class MutatedView final : public control::View {
 public:
  MutatedView(control::View& view, Mutation mutation) : view_(view), mutation_(mutation) {}
  std::optional<control::Snapshot> Observe(const control::Key& key) const override {
    return view_.Observe(key);
  }
  std::optional<control::Snapshot> TakeTurn(const control::Key& key) override { return view_.TakeTurn(key); }
  control::Revision Seen(control::Kind kind, const control::Key& key) const override {
    if (mutation_ == Mutation::kNoFreshnessGate) return std::numeric_limits<control::Revision>::max();
    return view_.Seen(kind, key);
  }
  std::vector<control::Key> Keys() const override { return view_.Keys(); }

 private:
  control::View& view_;
  const Mutation mutation_;
};

}  // namespace ringmaster::sim
