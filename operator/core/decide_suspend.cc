// SPDX-License-Identifier: Apache-2.0

// Suspending and resuming. A stop that was decided is carried through even when the wish changes meanwhile:
// the job then resumes with an attempt of its own.
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"

namespace ringmaster::core {
namespace {

Decision MarkSuspended(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  next.suspended = true;
  next.stop_since.reset();
  next.not_before.reset();
  next.counted.clear();
  next.failures_in_row = 0;
  next.withdrawals = 0;
  next.withdrawn_for.clear();
  if (next.active_since) next.active_before += now - *next.active_since;
  next.active_since.reset();
  if (o.report) next.report_floor = o.report->generation;
  return WriteLedger(o, std::move(next), now, "suspended", {{false, "Suspended", "no worker is left"}});
}

Decision Resume(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  next.suspended = false;
  next.active_since = now;
  if (!next.start_time) next.start_time = now;
  BeginAttempt(o, next, now);
  return WriteLedger(o, std::move(next), now, "resumed", {{false, "Resumed", "starting the workers again"}});
}

Decision StaySuspended(const Observed& o, Time now) {
  Decision decision;
  Requeue requeue;
  for (const Pod& pod : o.pods) RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
  decision.reason = "suspended";
  if (decision.actions.empty()) Refresh(o, o.status.ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

Decision CarryOutStop(const Observed& o, Time now, Requeue& requeue) {
  const Time limit = *o.status.ledger.stop_since + o.job.grace;
  const bool durable = ReportsPhase(o, rendezvous::GangPhase::kStopped);
  Decision decision;
  if (o.job.native) {
    const SetGang order{o.status.ledger.attempt, o.job.min, o.job.max, o.job.Target(), true, o.job.slots};
    if (o.order != order) decision.actions.push_back(order);
  }
  for (const Pod& pod : o.pods) {
    const bool old = pod.attempt != o.status.ledger.attempt;
    if (now >= limit) {
      RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
    } else if (!o.job.native || old || durable || !pod.alive()) {
      RemovePod(o.job, pod, std::min(limit - now, durable ? kDrainGrace : o.job.grace), now, decision.actions,
                requeue);
    } else if (pod.deleting()) {
      RemovePod(o.job, pod, o.job.grace, now, decision.actions, requeue);
    }
  }
  if (now < limit) requeue.By(limit);
  decision.reason = "stopping: waiting for the workers to write a checkpoint and end";
  if (decision.actions.empty()) Refresh(o, o.status.ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

}  // namespace

Decision Suspend(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.suspended) {
    if (!o.job.suspend && o.pods.empty()) return Resume(o, now);
    return StaySuspended(o, now);
  }
  if (!ledger.stop_since) {
    if (ledger.attempt == 0) return MarkSuspended(o, now);
    Ledger next = ledger;
    next.stop_since = now;
    return WriteLedger(o, std::move(next), now, "stop decided",
                       {{false, "Suspending", "the workers write a checkpoint and end"}});
  }
  if (o.pods.empty()) return MarkSuspended(o, now);
  return CarryOutStop(o, now, requeue);
}

}  // namespace ringmaster::core
