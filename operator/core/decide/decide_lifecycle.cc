// SPDX-License-Identifier: Apache-2.0

// How a job ends, is cleaned up, is suspended and is resumed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/rules.h"

namespace ringmaster::core {

namespace {

using rendezvous::GangPhase;

Decision Succeed(const Observed& o, Time now, Reason reason, std::string message) {
  Ledger next = o.status.ledger;
  next.outcome = Outcome::kSucceeded;
  next.outcome_reason = reason;
  next.outcome_message = message;
  next.completion_time = now;
  return WriteLedger(o, std::move(next), now, "succeeded", {{false, "Succeeded", std::move(message)}});
}

bool AllSucceeded(const Observed& o) {
  const Ledger& ledger = o.status.ledger;
  auto succeeded = static_cast<int32_t>(ledger.succeeded.size());
  for (const Pod& pod : o.pods) succeeded += IsSuccess(o, pod) && !HasSucceeded(ledger, pod.rank) ? 1 : 0;
  return ledger.attempt > 0 && succeeded > 0 && succeeded == ledger.gang_size;
}

bool Rank0Succeeded(const Observed& o) {
  if (o.job.success != Success::kRank0) return false;
  return HasSucceeded(o.status.ledger, 0) || std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
           return pod.rank == 0 && IsSuccess(o, pod);
         });
}

// Whether an agent has exited because the job is finished. One is enough: it had the order from a coordinator
// that knew of all. Others may have left by plan or lost the order, and the coordinator may be gone with its
// leader before this was recorded.
bool AgentFinished(const Observed& o) {
  return o.job.in_place && std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
           return pod.finished && pod.attempt == o.status.ledger.attempt;
         });
}

// The coordinator reports that no restart can help. Exit code 64 means a bad configuration only before the
// first step: a configuration that made steps was valid, so something else failed, such as the last
// checkpoint.
Decision FailAsReported(const Observed& o, Time now) {
  const auto& record = o.report->last_failure;
  Ledger next = o.status.ledger;
  if (!o.report->failure.empty())
    return Fail(o, std::move(next), now, Reason::kTrainingFailed, o.report->failure);
  if (!record)
    return Fail(o, std::move(next), now, Reason::kTrainingFailed, "the coordinator gave up the job");
  Failure& failure = next.last_failure.emplace(FailureOf(o, *record, now));
  const bool trained = next.stepped || o.report->step != next.base_step;
  const bool bad = !trained && failure.cause == Cause::kExit && failure.exit_code == kExitBadInput;
  failure.rule = bad ? ApplyRules({}, failure, {}).rule : "default: the coordinator gave up";
  return Fail(o, std::move(next), now, bad ? Reason::kBadConfiguration : Reason::kTrainingFailed,
              fmt::format("{}: {}", record->pod, record->message));
}

}  // namespace

bool IsSuccess(const Observed& o, const Pod& pod) {
  return pod.attempt == o.status.ledger.attempt && pod.phase == PodPhase::kSucceeded && !pod.interrupted();
}

bool HasSucceeded(const Ledger& ledger, int32_t rank) {
  return std::binary_search(ledger.succeeded.begin(), ledger.succeeded.end(), rank);
}

std::optional<Decision> AccountSuccesses(const Observed& o, Time now) {
  if (o.job.in_place) return std::nullopt;
  Ledger next = o.status.ledger;
  for (const Pod& pod : o.pods)
    if (IsSuccess(o, pod) && (pod.deleting() || !pod.tracked) && !HasSucceeded(o.status.ledger, pod.rank))
      next.succeeded.push_back(pod.rank);
  if (next.succeeded.size() == o.status.ledger.succeeded.size()) return std::nullopt;
  std::sort(next.succeeded.begin(), next.succeeded.end());
  return WriteLedger(o, std::move(next), now, "workers have finished");
}

Decision Fail(const Observed& o, Ledger ledger, Time now, Reason reason, std::string message) {
  ledger.outcome = Outcome::kFailed;
  ledger.outcome_reason = reason;
  ledger.outcome_message = message;
  ledger.completion_time = now;
  return WriteLedger(o, std::move(ledger), now, fmt::format("failed: {}", ReasonName(reason)),
                     {{true, ReasonName(reason), std::move(message)}});
}

std::optional<Decision> CheckEnd(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  const bool reported = ReportsPhase(o, GangPhase::kFinished);
  const bool finished = reported || AgentFinished(o);
  if (o.job.programs && finished) {
    using Decider = rendezvous::ProgramPolicy::Decider;
    if (o.job.policy.counts_ranks)
      return Succeed(o, now, Reason::kLauncherSucceeded,
                     "the launcher and all of its ranks ended with exit code 0");
    if (o.job.policy.decider == Decider::kFirst)
      return Succeed(o, now, Reason::kRank0Succeeded, "rank 0 ended with exit code 0");
    if (o.job.policy.decider == Decider::kRole)
      return Succeed(o, now, Reason::kChiefSucceeded, o.job.policy.decider_role + " ended with exit code 0");
    return Succeed(o, now, Reason::kAllPodsSucceeded, "every worker ended with exit code 0");
  }
  if (finished)
    return Succeed(o, now, Reason::kAllStepsDone,
                   reported ? fmt::format("{} steps done, loss {:.4f}", o.report->step, o.report->loss)
                            : "all steps are done");
  if (ReportsPhase(o, GangPhase::kFailed)) return FailAsReported(o, now);
  if (!o.job.in_place && !ledger.stop_since && !ledger.suspended && AllSucceeded(o))
    return Succeed(o, now, Reason::kAllPodsSucceeded, "every worker ended with exit code 0");
  if (!o.job.in_place && !ledger.stop_since && !ledger.suspended && Rank0Succeeded(o))
    return Succeed(o, now, Reason::kRank0Succeeded, "rank 0 ended with exit code 0");

  return CheckDeadline(o, now, requeue);
}

std::optional<Decision> CheckDeadline(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (o.job.active_deadline == Duration{0} || !ledger.active_since) return std::nullopt;
  // Time without nodes does not count, as time in a queue of Kueue does not.
  const bool queued = ledger.time_accounting == TimeAccounting::kQueue && ledger.accounted != Time{};
  const Duration waiting = queued ? std::max(now - ledger.accounted, Duration{0}) : Duration{0};
  const Time deadline =
      *ledger.active_since + (o.job.active_deadline - ledger.active_before) + ledger.goodput.queue + waiting;
  if (now >= deadline)
    return Fail(o, ledger, now, Reason::kDeadlineExceeded,
                fmt::format("active for {} s, the limit of lifecycle.activeDeadlineSeconds; raise it, and "
                            "create the job again",
                            ToMs(o.job.active_deadline) / 1000));
  if (!queued) requeue.By(deadline);
  return std::nullopt;
}

// A job that is deleted with --cascade=foreground stays until its pods are gone, one with --cascade=orphan
// until the garbage collector has removed its pods' owner references.
Decision CleanUpDeleted(const Observed& o, Time now, Requeue& requeue) {
  Decision decision;
  for (const Pod& pod : o.pods) {
    if (!o.job.orphans)
      DrainPod(o.job, pod, now, decision.actions, requeue);
    else if (pod.tracked)
      decision.actions.push_back(UntrackPod{pod.name, pod.uid});
  }
  decision.reason = o.job.orphans ? "deleted; its pods run on" : "deleted";
  if (decision.actions.empty() && (o.pods.empty() || o.job.orphans)) ReleaseWorkloads(o, decision.actions);
  decision.requeue_at = requeue.at();
  return decision;
}

// The garbage collector deletes the pods of a job that is gone, but waits without a limit for a pod that does
// not end, such as one on a lost node. Pods without an owner are not deleted.
std::optional<Decision> ReleaseStrays(const Observed& o, Time now, Requeue& requeue) {
  Decision decision;
  for (const Pod& pod : o.strays) {
    if (pod.tracked) {
      decision.actions.push_back(UntrackPod{pod.name, pod.uid});
    } else if (pod.deleting()) {
      RemovePod(o.job, pod, kDrainGrace, now, decision.actions, requeue);
    }
  }
  if (o.strays.empty())
    for (const PodRef& stray : o.stray_workloads)
      decision.actions.push_back(ReleaseWorkload{stray.name, stray.uid});
  if (decision.actions.empty()) return std::nullopt;
  decision.reason = "letting go of the pods of an earlier job";
  return decision;
}

Decision CleanUpEnded(const Observed& o, Time now, Requeue& requeue) {
  Decision decision;
  const Ledger& ledger = o.status.ledger;
  const Time ended = ledger.completion_time.value_or(now);
  // The coordinator asks the agents of a finished gang to exit, so their pods get a moment without a
  // deletion. A completion time in the future comes from a clock that was set back since.
  const bool exiting =
      ledger.outcome == Outcome::kSucceeded && now >= ended && now < ended + o.job.finish_grace;
  for (const Pod& pod : o.pods) {
    const bool remove =
        o.job.clean_pods == CleanPods::kAll ||
        (o.job.clean_pods == CleanPods::kRunning && (pod.alive() || pod.lingers || pod.deleting()));
    if (!remove) {
      if (pod.tracked) decision.actions.push_back(UntrackPod{pod.name, pod.uid});
      continue;
    }
    if (exiting && pod.alive()) {
      requeue.By(ended + o.job.finish_grace);
      continue;
    }
    DrainPod(o.job, pod, now, decision.actions, requeue);
  }
  decision.reason = "ended";
  if (decision.actions.empty()) FinishWorkload(o, decision.actions);
  const bool ends = std::any_of(o.pods.begin(), o.pods.end(), [](const Pod& pod) { return pod.alive(); });
  if (decision.actions.empty() && o.holds_groups && !ends) decision.actions.push_back(DropGroups{});
  if (o.job.ttl) {
    if (now >= ended + *o.job.ttl && decision.actions.empty()) {
      decision.actions.push_back(DeleteJob{});
      decision.reason = "ended, and its time to live has passed";
    } else {
      requeue.By(ended + *o.job.ttl);
    }
  }
  if (decision.actions.empty()) Refresh(o, ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

// ---- suspension: a stop that was decided is carried out even when the spec changes in between. The job then
// resumes with a new attempt.

namespace {

Decision MarkSuspended(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  next.suspended = true;
  if (o.job.suspend) next.preemption.reset();  // it waits for its user, not for room
  next.stop_since.reset();
  next.not_before.reset();
  next.counted.clear();
  next.failures_in_row = 0;
  next.withdrawals = 0;
  next.withdrawn_for.clear();
  if (next.active_since) next.active_before += now - *next.active_since;
  next.active_since.reset();
  if (o.report) next.report_floor = o.report->Newest();
  return WriteLedger(o, std::move(next), now, "suspended", {{false, "Suspended", "all workers have ended"}});
}

Decision Resume(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  next.suspended = false;
  next.active_since = now;
  if (!next.start_time) next.start_time = now;
  BeginAttempt(o, next, now);
  return WriteLedger(o, std::move(next), now, "resumed", {{false, "Resumed", "starting the workers again"}});
}

Decision StaySuspended(const Observed& o, Time now, Requeue& requeue) {
  Decision decision;
  for (const Pod& pod : o.pods) RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
  decision.reason = "suspended";
  if (o.pods.empty()) SettleWorkload(o, now, decision.actions, requeue);
  if (o.pods.empty() && o.holds_groups) decision.actions.push_back(DropGroups{});
  if (decision.actions.empty()) Refresh(o, o.status.ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

Decision CarryOutStop(const Observed& o, Time now, Requeue& requeue) {
  const Time limit = *o.status.ledger.stop_since + o.job.grace;
  const bool durable = ReportsPhase(o, rendezvous::GangPhase::kStopped);
  Decision decision;
  if (o.job.in_place) {
    const SetGang order = OrderOf(o, true, now);
    if (o.order != order) decision.actions.push_back(order);
  }
  for (const Pod& pod : o.pods) {
    const bool old = pod.attempt != o.status.ledger.attempt;
    if (now >= limit) {
      RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
    } else if (!o.job.in_place || old || durable || !pod.alive()) {
      const Duration grace = durable ? std::max(kDrainGrace, o.job.finish_grace) : o.job.grace;
      RemovePod(o.job, pod, std::min(limit - now, grace), now, decision.actions, requeue);
    } else if (pod.deleting()) {
      RemovePod(o.job, pod, o.job.grace, now, decision.actions, requeue);
    }
  }
  if (now < limit) requeue.By(limit);
  decision.reason = "stopping: waiting for the workers to write a checkpoint and exit";
  if (decision.actions.empty()) Refresh(o, o.status.ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

}  // namespace

Decision Suspend(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.suspended) {
    if (!o.job.suspend && !HeldByQuota(o) && o.pods.empty()) return Resume(o, now);
    return StaySuspended(o, now, requeue);
  }
  if (!ledger.stop_since) {
    if (ledger.attempt == 0 || NotBegun(ledger)) return MarkSuspended(o, now);
    Ledger next = ledger;
    next.stop_since = now;
    return WriteLedger(o, std::move(next), now, "stop decided",
                       {{false, "Suspending", "the workers exit, after a checkpoint if the job writes any"}});
  }
  if (o.pods.empty()) return MarkSuspended(o, now);
  return CarryOutStop(o, now, requeue);
}

}  // namespace ringmaster::core
