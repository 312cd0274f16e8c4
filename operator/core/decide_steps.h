// SPDX-License-Identifier: Apache-2.0

// The rungs of the ladder that Decide climbs, one file each. Internal to core.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace ringmaster::core {

// The earliest time at which the same question may get another answer.
class Requeue {
 public:
  void By(Time at) { at_ = at_ ? std::min(*at_, at) : at; }
  std::optional<Time> at() const { return at_; }

 private:
  std::optional<Time> at_;
};

// One status write with the new ledger, and the display that fits it.
Decision WriteLedger(const Observed& observed, Ledger ledger, Time now, std::string reason,
                     std::vector<Event> events = {});

// Raises the attempt: the next pod set is another one.
void BeginAttempt(const Observed& observed, Ledger& ledger, Time now);

// Writes the display (and `ledger`) when something changed: at once for another phase, conditions alone at
// most once in kDisplayInterval, numbers and words alone once in the job's progress interval.
Display Refresh(const Observed& observed, Ledger ledger, Time now, Decision& decision, Requeue& requeue);

// The verdict of the report about the end (stopped, finished, failed) concerns this run, not one before.
bool ReportsPhase(const Observed& observed, rendezvous::GangPhase phase);

// Deletes what `pod` needs now: with `grace` when it was not told yet, by force when it overstayed.
// Appends nothing when it is on its way. A node that has been unreachable for too long is not waited for.
void RemovePod(const Job& job, const Pod& pod, Duration grace, Time now, std::vector<Action>& actions,
               Requeue& requeue);

// A pod that may be part of the gang: of this attempt and within its size.
bool InGang(const Job& job, const Ledger& ledger, const Pod& pod);

// decide_placement.cc: a pod of another attempt is still there.
bool Draining(const Observed& observed);

// decide_clock.cc: the ledger was written by a clock that is ahead of ours: times to come are taken for now.
Ledger ClampFutureTimes(const Observed& observed, Time now);

// decide_goodput.cc: books the time since the last look, and says what the time from now on goes into.
void AccountTime(const Observed& observed, Ledger& ledger, Time now);
TimeAccounting TimeAccountingOf(const Observed& observed, const Ledger& ledger, Time now);

// decide_ending.cc
std::optional<Decision> CheckEnd(const Observed& observed, Time now, Requeue& requeue);
Decision Fail(const Observed& observed, Ledger ledger, Time now, Reason reason, std::string message);
Decision CleanUpEnded(const Observed& observed, Time now);
Decision CleanUpDeleted(const Observed& observed, Time now);

// decide_suspend.cc: the job is to be suspended, is on the way, is, or is to be resumed.
Decision Suspend(const Observed& observed, Time now, Requeue& requeue);

// decide_failures.cc: why a pod that has its node does not run, and what to do about it; empty: nothing is
// known.
std::string WaitingText(const Pod& pod);
bool WaitsForImage(const Pod& pod);

// decide_failures.cc: counts what went wrong, decides on restart or failure.
Failure FailureOf(const Observed& observed, const rendezvous::FailureRecord& told, Time now);
std::optional<Decision> CheckFailures(const Observed& observed, Time now, Requeue& requeue);

// decide_suspects.cc: judges workers that fell silent, or ended with an error that may be a lost peer's, once
// it is known how the nodes are.
std::optional<Decision> CheckSuspects(const Observed& observed, Time now, Requeue& requeue);
// Whether the node is known to be not ready or gone.
bool IsNotReady(const Observed& observed, const std::string& node);
// Nodes that new pods should keep off where they can. Sorted.
std::vector<std::string> AvoidedNodes(const Ledger& ledger, Time now);
// A worker ended with an error, and how the drain of the old gang goes will tell whether a lost node was the
// cause: no pod of it that overstays is removed by force before that.
bool DrainMayShowLostNode(const Ledger& ledger, Time now);
// Keeps new pods off the failure's node for a while.
void ExcludeNode(const Job& job, const Failure& failure, Time now, std::vector<ExcludedNode>& excluded);
// A pod keeps off the nodes that were excluded or avoided when it was made. When that ends, those that still
// look for a node are to be made anew. A gang that has not found its nodes yet is left to its timeout.
void ReplaceUnplaced(const Observed& observed, Ledger& next);

// decide_placement.cc: nodes for the whole gang, or for none of it.
struct Placement {
  int32_t wanted = 0;  // pods of the gang
  int32_t needed = 0;  // with so many it can run; fewer than wanted only for elastic gangs
  int32_t exist = 0;
  int32_t bound = 0;
  int32_t coming = 0;                  // shown to the scheduler, which has not said no
  std::vector<PodRef> gated;           // in rank order
  const Pod* unschedulable = nullptr;  // that the scheduler finds no node for, and says why
};
Placement PlacementOf(const Observed& observed, const Ledger& ledger);
// For how long the gang has been looking for nodes; nullopt when nothing limits that now.
std::optional<Time> PlacementLimit(const Observed& observed);
// An elastic gang may begin, or go on, with fewer pods than wanted: it runs already, or has waited for long.
bool MayRunSmaller(const Observed& observed, Time now);
// What stands between the gang and its nodes.
std::string MissingText(const Observed& observed, const Placement& placement);
// The gang is given up for a while when it did not find its nodes in time.
std::optional<Decision> CheckPlacement(const Observed& observed, Time now, Requeue& requeue);
// Takes gates away when there is room.
void ReleaseGated(const Observed& observed, Time now, std::vector<Action>& actions);
// The refusal that holds pods back now, if any.
const Refusal* ActiveRefusal(const Observed& observed, Time now);

// decide_converge.cc: drains, creates, scales, gives orders, keeps the display fresh.
Decision Converge(const Observed& observed, Time now, Requeue& requeue);

}  // namespace ringmaster::core
