// SPDX-License-Identifier: Apache-2.0

// The steps of Decide, grouped by the file that implements them. Internal to operator/core.
//
// A step that returns optional<Decision> returns nullopt when it does not apply; the ladder then continues
// with the next one. Such a step may still record in `requeue` when it will apply.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/decide/rules.h"
#include "operator/core/model.h"

namespace ringmaster::core {

// The earliest time at which the same job may need another decision.
class Requeue {
 public:
  void By(Time at) { at_ = at_ ? std::min(*at_, at) : at; }
  std::optional<Time> at() const { return at_; }

 private:
  std::optional<Time> at_;
};

// ---- decide.cc: what all steps share

// Returns a decision that writes `ledger` and the matching display.
Decision WriteLedger(const Observed& observed, Ledger ledger, Time now, std::string reason,
                     std::vector<Event> events = {});

// Computes the display and appends a status write to `decision` when one is due: at once for a changed phase
// or ledger, or when other jobs begin to make room, at most once per kDisplayInterval for changed conditions,
// at most once per progress interval for changed numbers and messages. Returns the display.
Display Refresh(const Observed& observed, Ledger ledger, Time now, Decision& decision, Requeue& requeue);

// Moves the ledger to the next attempt: the next pod set has new names.
void BeginAttempt(const Observed& observed, Ledger& ledger, Time now);

// Whether the current run reports `phase`, which ends it (stopped, finished, failed). Reports about an
// earlier run do not count.
bool ReportsPhase(const Observed& observed, rendezvous::GangPhase phase);

// Appends what removes `pod`, whose end needs no more accounting. Its deletion: with `grace` when none was
// requested yet, by force when the pod overstayed. Appends nothing while a requested deletion is in progress.
// A node that has been unreachable for longer than the job's limit is not waited for.
void RemovePod(const Job& job, const Pod& pod, Duration grace, Time now, std::vector<Action>& actions,
               Requeue& requeue);

// Like RemovePod, for a pod that the next gang or the end of the job waits for: its grace period, which
// others may have set, ends by kDrainGrace.
void DrainPod(const Job& job, const Pod& pod, Time now, std::vector<Action>& actions, Requeue& requeue);

// Whether `pod` may be part of the gang: it is of the current attempt and its rank is within the size.
bool InGang(const Job& job, const Ledger& ledger, const Pod& pod);

// Adds the time since the last call to the ledger's goodput, and sets the account of the time from now on.
void AccountTime(const Observed& observed, Ledger& ledger, Time now);
TimeAccounting TimeAccountingOf(const Observed& observed, const Ledger& ledger, Time now);

// Returns the order that the coordinator should have. Of a job that waits for its back-off it allows no
// restart yet.
SetGang OrderOf(const Observed& observed, bool stop, Time now);

// ---- decide_lifecycle.cc: success, failure, deletion, suspension

std::optional<Decision> CheckEnd(const Observed& observed, Time now, Requeue& requeue);
// The part of CheckEnd that needs no valid spec.
std::optional<Decision> CheckDeadline(const Observed& observed, Time now, Requeue& requeue);
Decision Fail(const Observed& observed, Ledger ledger, Time now, Reason reason, std::string message);
// Whether this rank of the attempt has done its part of the work (frameworks other than native).
bool HasSucceeded(const Ledger& ledger, int32_t rank);
// Whether the pod shows that its rank has done its part of the work. A pod that was deleted while it ran may
// end with 0, too.
bool IsSuccess(const Observed& observed, const Pod& pod);
// Writes successes that their pods will not show any more, before these pods go.
std::optional<Decision> AccountSuccesses(const Observed& observed, Time now);
Decision CleanUpEnded(const Observed& observed, Time now, Requeue& requeue);
Decision CleanUpDeleted(const Observed& observed, Time now, Requeue& requeue);
// Lets go of the pods of earlier jobs of this name.
std::optional<Decision> ReleaseStrays(const Observed& observed, Time now, Requeue& requeue);
// Suspends or resumes the job, or continues a suspension.
Decision Suspend(const Observed& observed, Time now, Requeue& requeue);

// ---- decide_preemption.cc: room for a job of higher priority

// Makes room, or takes it back.
std::optional<Decision> CheckPreemption(const Observed& observed, Time now);
// Returns "ml/big (priority 100) needs room".
std::string PreemptorText(const Preemption& preemption);

// ---- decide_failures.cc: count what went wrong, then restart or fail

std::optional<Decision> CheckFailures(const Observed& observed, Time now, Requeue& requeue);
Failure FailureOf(const Observed& observed, const rendezvous::FailureRecord& record, Time now);
// Why a pod that has a node does not run, and the remedy. Empty: unknown.
std::string WaitingText(const Pod& pod);
bool WaitsForImage(const Pod& pod);

// ---- decide_suspects.cc: failures that a lost node may explain

std::optional<Decision> CheckSuspects(const Observed& observed, Time now, Requeue& requeue);
// Whether the node is known to be not ready or gone.
bool IsNotReady(const Observed& observed, const std::string& node);
// Whether the node is known to have started again after `since`.
bool HasRestarted(const Observed& observed, const std::string& node, Time since);
// Returns the nodes that new pods should avoid where possible: suspected and lost ones. Sorted.
std::vector<std::string> AvoidedNodes(const Ledger& ledger, Time now);
// Whether the drain of the old gang may still show that a lost node caused its failure. Until then no pod
// that overstays is removed by force.
bool DrainMayShowLostNode(const Ledger& ledger, Time now);
// Excludes the failure's node from new pods for the job's exclusion time, if the ruling says so.
void ExcludeNode(const Job& job, const Failure& failure, const RuleDecision& ruling, Time now,
                 std::vector<ExcludedNode>& excluded);
// Marks pods without a node for replacement after an exclusion or a suspicion has ended: a pod keeps the node
// restrictions that it was created with. A gang that is not placed yet is left to its timeout.
void ReplaceUnplaced(const Observed& observed, Ledger& next);

// ---- decide_placement.cc: nodes for the gang

struct Placement {
  int32_t wanted = 0;  // pods of the gang
  int32_t needed = 0;  // pods without which it cannot run; fewer than `wanted` only for elastic gangs
  int32_t exist = 0;
  int32_t bound = 0;
  int32_t coming = 0;                  // visible to the scheduler, which has not refused them
  std::vector<const Pod*> gated;       // in rank order
  const Pod* unschedulable = nullptr;  // the pod with the scheduler's best explanation
  const Pod* ignored = nullptr;        // the newest pod, while no scheduler has reported about any of them
};
Placement PlacementOf(const Observed& observed, const Ledger& ledger);
// What keeps the gang from its nodes.
std::string MissingText(const Observed& observed, const Placement& placement, Time now);
// Returns a pod whose scheduler does not run; nullptr: there is none.
const Pod* Ignored(const Placement& placement, Time now);
// Returns the refusal that forbids creating objects now, or nullptr.
const Refusal* ActiveRefusal(const Observed& observed, Time now);
// Whether a pod of another attempt, or of an earlier job of this name, still exists.
bool Draining(const Observed& observed);
// Withdraws a gang that did not find its nodes in time.
std::optional<Decision> CheckPlacement(const Observed& observed, Time now, Requeue& requeue);
// Whether an elastic gang may run with fewer pods than wanted: it has run before, or has waited long enough.
bool MayRunSmaller(const Observed& observed, Time now);
// Returns the ranks of the waiting pods that may go ahead with the room there is. Sorted.
std::vector<int32_t> AdmittedRanks(const Observed& observed, Time now);
// Whether a gang that reserves room is created gated.
bool CreatesGated(const Observed& observed, const Placement& placement);
// Removes the gates of the pods that may be scheduled now.
void ReleaseGated(const Observed& observed, Time now, std::vector<Action>& actions);

// ---- decide_pods.cc: the gang's pods

// Drains, creates and releases pods, sends orders to the coordinator, and refreshes the display. Always
// applies.
Decision Converge(const Observed& observed, Time now, Requeue& requeue);

// ---- torn_gang.cc: gangs that were placed in part

// A remark about a gang that has not run yet and has nodes for a part of its pods; otherwise empty.
std::string TornText(const Observed& observed, const Placement& placement, Time now);

}  // namespace ringmaster::core
