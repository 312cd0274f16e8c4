// SPDX-License-Identifier: Apache-2.0

#include "operator/core/decide/decide.h"

#include <algorithm>
#include <utility>

#include "operator/core/decide/decide_kueue.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/summary.h"

namespace ringmaster::core {
namespace {

Decision RefuseInvalid(const Observed& o, Time now, const Requeue& requeue);
Decision Accept(const Observed& o, Time now);
Decision DecideAccepted(const Observed& o, Time now);
Ledger ClampFutureTimes(const Observed& o, Time now);

}  // namespace

Decision Decide(const Observed& o, Time now) {
  if (o.job.remote) return WatchRemote(o, now);
  // A new job that is to be suspended is marked so, and its first pods belong to another attempt.
  const bool stopped = o.job.suspend || HeldByQuota(o);
  const bool begins = NotBegun(o.status.ledger) && (!stopped || !o.pods.empty()) && o.invalid.empty() &&
                      !o.job.deleted && !o.status.ended();
  return begins ? DecideAccepted(Begun(o, now), now) : DecideAccepted(o, now);
}

namespace {

Decision DecideAccepted(const Observed& o, Time now) {
  const Ledger& ledger = o.status.ledger;
  Requeue requeue;
  if (auto decision = ReleaseStrays(o, now, requeue)) return *std::move(decision);
  if (o.job.deleted) return CleanUpDeleted(o, now, requeue);
  if (o.status.ended()) return CleanUpEnded(o, now, requeue);
  // A job with an invalid spec can still be suspended, since most fields can be corrected only then.
  if (!o.invalid.empty() && !o.job.suspend && !ledger.stop_since) {
    if (auto decision = CheckDeadline(o, now, requeue)) return *std::move(decision);
    return RefuseInvalid(o, now, requeue);
  }

  if (Ledger clamped = ClampFutureTimes(o, now); clamped != ledger)
    return WriteLedger(o, std::move(clamped), now, "the clock was set back");
  if (auto decision = CheckEnd(o, now, requeue)) return *std::move(decision);
  const bool held = HeldByQuota(o);
  const bool begun = ledger.attempt > 0 && !NotBegun(ledger);
  if (held && !o.job.suspend && !begun && !ledger.suspended && o.pods.empty())
    return AwaitQuota(o, now, requeue);
  if (auto decision = CheckPreemption(o, now)) return *std::move(decision);
  if (o.job.suspend || held || ledger.stop_since || ledger.suspended) return Suspend(o, now, requeue);
  if (ledger.attempt == 0) return Accept(o, now);
  if (auto decision = CheckSuspects(o, now, requeue)) return *std::move(decision);
  if (auto decision = CheckFailures(o, now, requeue)) return *std::move(decision);
  if (auto decision = AccountSuccesses(o, now)) return *std::move(decision);
  if (auto decision = CheckPlacement(o, now, requeue)) return *std::move(decision);
  return Converge(o, now, requeue);
}

// Leaves everything as it is until the spec changes, and reports the error once.
Decision RefuseInvalid(const Observed& o, Time now, const Requeue& requeue) {
  Decision decision;
  decision.reason = "invalid";
  decision.requeue_at = requeue.at();
  Display display = SummarizeInvalid(o, now);
  if (display == o.status.display) return decision;
  decision.actions.push_back(SetStatus{{o.status.ledger, std::move(display)}});
  decision.events.push_back({true, "Invalid", o.invalid});
  return decision;
}

Decision Accept(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  BeginAttempt(o, next, now);
  next.start_time = now;
  next.active_since = now;
  return WriteLedger(o, std::move(next), now, "accepted");
}

}  // namespace

// Completes the ledger with what the pods and the supporting objects say. The first status write records
// it. Until then each decision comes to the same, and the attempt, which fences the pods, is in the log.
Observed Begun(const Observed& o, Time now) {
  Observed begun = o;
  Ledger& ledger = begun.status.ledger;
  int32_t ranks = 0;
  Time since = now;
  for (const Pod& pod : o.pods) {
    if (pod.rank > kMaxRank) continue;
    ranks = std::max(ranks, pod.rank + 1);
    since = std::min(since, pod.created);
  }
  // Not the size that the spec asks for now, once something has another one.
  ledger.gang_size = o.prepared && o.prepared->attempt == 1 ? o.prepared->size
                     : ranks > 0                            ? ranks
                                                            : o.job.Target();
  ledger.attempt_since = since;
  ledger.start_time = since;
  ledger.active_since = since;
  ledger.accounted = since;
  ledger.time_accounting = TimeAccounting::kQueue;
  return begun;
}

bool NotBegun(const Ledger& ledger) {
  return ledger.attempt == 1 && ledger.attempt_since == Time{} && !ledger.suspended;
}

// ---- status writes

Decision WriteLedger(const Observed& o, Ledger ledger, Time now, std::string reason,
                     std::vector<Event> events) {
  if (!o.status.ended()) AccountTime(o, ledger, now);
  Status status{std::move(ledger), {}};
  status.display = Summarize(o, status.ledger, now);
  return {{SetStatus{std::move(status)}}, std::move(events), std::nullopt, std::move(reason)};
}

Display Refresh(const Observed& o, Ledger ledger, Time now, Decision& decision, Requeue& requeue) {
  const Display& before = o.status.display;
  Display display = Summarize(o, ledger, now);
  // Who makes room for whom is of interest even if it takes a moment only.
  const bool preempts = display.Of(ConditionType::kScheduled).reason == Reason::kPreempting &&
                        before.Of(ConditionType::kScheduled).reason != Reason::kPreempting;
  bool write = ledger != o.status.ledger || display.phase != before.phase || preempts ||
               display.gang_generation != before.gang_generation ||
               display.weights_hash != before.weights_hash;
  bool deferrable = false;
  if (!write && display != before) {
    deferrable = EqualIgnoringDetails(display, before);
    const Reason scheduled = display.Of(ConditionType::kScheduled).reason;
    const bool waits =
        !ledger.placed && (scheduled == Reason::kWaitingForCapacity || scheduled == Reason::kPreempting);
    const bool queued = scheduled == Reason::kWaitingForQuota;
    const Duration pause = !deferrable ? kDisplayInterval
                           : waits     ? kWaitingInterval
                           : queued    ? kQueuedInterval
                                       : o.job.progress_interval;
    const Time due = before.progress_at ? *before.progress_at + pause : now;
    write = now >= due;
    if (!write) requeue.By(due);
  }
  if (!write) return display;
  if (!o.status.ended()) AccountTime(o, ledger, now);
  decision.actions.push_back(SetStatus{{std::move(ledger), display}, deferrable});
  return display;
}

void BeginAttempt(const Observed& o, Ledger& ledger, Time now) {
  for (const Pod& pod : o.pods)
    if (pod.attempt <= kMaxAttempt) ledger.attempt = std::max(ledger.attempt, pod.attempt);
  ledger.attempt += 1;
  ledger.attempt_since = now;
  ledger.placed = false;
  ledger.gang_size = o.job.Target();
  ledger.counted.clear();
  ledger.succeeded.clear();
  ledger.ready_since.reset();
  ledger.stepped = false;
  ledger.absent.clear();
  ledger.base_step = o.report ? o.report->step : 0;
}

// ---- questions and actions that several steps share

bool ReportsPhase(const Observed& o, rendezvous::GangPhase phase) {
  if (!o.job.in_place || !o.report || o.report->phase != phase) return false;
  const auto& floor = o.status.ledger.report_floor;
  return !floor || o.report->Newest() > *floor;
}

SetGang OrderOf(const Observed& o, bool stop, Time now) {
  const Ledger& ledger = o.status.ledger;
  SetGang order{ledger.attempt, o.job.min, o.job.max, o.job.Target(), stop, o.job.slots};
  order.library = o.job.library;
  if (!o.job.programs) return order;
  order.programs = true;
  order.stop_grace = o.job.stop_grace;
  order.policy = o.job.policy;
  const bool pause = ledger.not_before && now < *ledger.not_before;
  order.accounted = pause && o.order ? o.order->accounted : ledger.incident;
  return order;
}

bool InGang(const Job& job, const Ledger& ledger, const Pod& pod) {
  return pod.attempt == ledger.attempt &&
         job.HasRank(job.in_place ? job.Target() : ledger.gang_size, pod.rank);
}

void RemovePod(const Job& job, const Pod& pod, Duration grace, Time now, std::vector<Action>& actions,
               Requeue& requeue) {
  if (pod.unreachable_since && grace > Duration{0}) {
    const Time limit = *pod.unreachable_since + job.unreachable_node_limit;
    if (now >= limit)
      grace = Duration{0};
    else
      requeue.By(limit);
  }
  if (!pod.alive() && !pod.lingers) grace = Duration{0};
  if (!pod.deleting()) {
    actions.push_back(DeletePod{pod.name, pod.uid, grace});
    return;
  }
  Time due = *pod.delete_by + kOverstayMargin;
  // The node removes a pod right after it reports the pod's end. A forced deletion would cost another request
  // for each pod of a gang, and half of these requests would arrive too late.
  const bool left_to_node = !pod.alive() && !pod.lingers && !pod.unreachable_since;
  if (grace == Duration{0} && *pod.delete_by > now && !left_to_node) due = now;
  if (now >= due) {
    actions.push_back(DeletePod{pod.name, pod.uid, Duration{0}});
    return;
  }
  requeue.By(due);
  // A pod that was deleted by force disappears with our finalizer, though its program may still run. The node
  // reports its end soon, and until then no other attempt begins.
  const bool forced_alive =
      *pod.delete_by <= now && pod.alive() && pod.bound() && !pod.unreachable_since && grace > Duration{0};
  if (pod.tracked && !forced_alive) actions.push_back(UntrackPod{pod.name, pod.uid});
}

void DrainPod(const Job& job, const Pod& pod, Time now, std::vector<Action>& actions, Requeue& requeue) {
  const Duration grace = std::min(job.grace, kDrainGrace);
  // Others may have requested the deletion, for example to preempt the pod, and granted it more time than the
  // gang waits for. The margin keeps a rounded time from being shortened again and again.
  if (pod.deleting() && pod.alive() && !pod.unreachable_since &&
      *pod.delete_by > now + grace + kOverstayMargin) {
    actions.push_back(DeletePod{pod.name, pod.uid, grace});
    return;
  }
  RemovePod(job, pod, grace, now, actions, requeue);
}

// ---- wrong clocks
//
// The ledger's times come from the clock of another machine, or from this one's before it was set. A time in
// the future would make the operator wait for it.

namespace {

// Clocks of two machines usually differ by less than this.
constexpr Duration kSkew = seconds(5);

class Clamp {
 public:
  explicit Clamp(Time now) : now_(now) {}

  void Past(Time& at) const { Future(at, Duration{0}); }
  void Past(std::optional<Time>& at) const {
    if (at) Past(*at);
  }
  // Limits `at` to at most `ahead` from now.
  void Future(Time& at, Duration ahead) const {
    if (at > now_ + ahead + kSkew) at = now_ + ahead;
  }

 private:
  Time now_;
};

// Returns the ledger with impossible future times replaced.
Ledger ClampFutureTimes(const Observed& o, Time now) {
  Ledger ledger = o.status.ledger;
  const Clamp clamp(now);
  clamp.Past(ledger.attempt_since);
  clamp.Past(ledger.ready_since);
  clamp.Past(ledger.stop_since);
  clamp.Past(ledger.active_since);
  clamp.Past(ledger.start_time);
  clamp.Past(ledger.accounted);
  for (Suspect& suspect : ledger.suspects) clamp.Past(suspect.since);
  for (Absence& absence : ledger.absent) clamp.Past(absence.since);
  if (ledger.not_before) clamp.Future(*ledger.not_before, std::max(o.job.backoff_initial, o.job.backoff_max));
  for (ExcludedNode& node : ledger.excluded) clamp.Future(node.until, o.job.node_exclusion);
  return ledger;
}

// ---- time accounting: how much of the job's time was productive

// Returns nullptr for time that no account gets.
Duration* AccountOf(Goodput& goodput, TimeAccounting accounting) {
  switch (accounting) {
    case TimeAccounting::kNothing:
      return nullptr;
    case TimeAccounting::kQueue:
      return &goodput.queue;
    case TimeAccounting::kStartup:
      return &goodput.startup;
    case TimeAccounting::kRestart:
      return &goodput.restart;
    case TimeAccounting::kProductive:
      return &goodput.productive;
  }
  return nullptr;
}

// Moves the share of the steps that are done twice from the productive time to the redone time.
void MoveRedone(const Observed& o, Ledger& ledger) {
  if (!o.report) return;
  const int64_t lost = o.report->lost_steps - ledger.lost_steps;
  ledger.lost_steps = o.report->lost_steps;
  const int64_t done = o.report->step + o.report->lost_steps;
  if (lost <= 0 || done <= 0) return;
  const double share = std::min(1.0, static_cast<double>(lost) / static_cast<double>(done));
  const Duration moved(static_cast<int64_t>(share * static_cast<double>(ledger.goodput.productive.count())));
  ledger.goodput.productive -= moved;
  ledger.goodput.redone += moved;
}

}  // namespace

TimeAccounting TimeAccountingOf(const Observed& o, const Ledger& ledger, Time now) {
  if (ledger.outcome != Outcome::kNone || ledger.suspended || ledger.stop_since || ledger.attempt == 0 ||
      NotBegun(ledger))
    return TimeAccounting::kNothing;
  const bool again = ledger.failures_in_row > 0;
  if (!ledger.placed) {
    const bool draining = std::any_of(o.pods.begin(), o.pods.end(),
                                      [&](const Pod& pod) { return pod.attempt != ledger.attempt; });
    const bool pause = ledger.not_before && *ledger.not_before > now && ledger.withdrawals == 0;
    return again && (draining || pause) ? TimeAccounting::kRestart : TimeAccounting::kQueue;
  }
  const bool works = o.job.in_place
                         ? ledger.stepped && o.report && o.report->phase == rendezvous::GangPhase::kActive
                         : ledger.ready_since.has_value();
  if (works) return TimeAccounting::kProductive;
  return again || ledger.stepped ? TimeAccounting::kRestart : TimeAccounting::kStartup;
}

void AccountTime(const Observed& o, Ledger& ledger, Time now) {
  if (ledger.accounted != Time{} && now > ledger.accounted)
    if (Duration* account = AccountOf(ledger.goodput, ledger.time_accounting))
      *account += now - ledger.accounted;
  ledger.accounted = now;
  MoveRedone(o, ledger);
  ledger.time_accounting = TimeAccountingOf(o, ledger, now);
}

}  // namespace ringmaster::core
