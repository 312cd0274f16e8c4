// SPDX-License-Identifier: Apache-2.0

// Where the time of a job goes. Booked whenever the ledger is written anyway.
#include <algorithm>

#include "operator/core/decide_steps.h"

namespace ringmaster::core {
namespace {

Duration* BookOf(Goodput& goodput, TimeAccounting time_accounting) {
  switch (time_accounting) {
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

// Steps done twice took their share of the productive time.
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
  if (ledger.outcome != Outcome::kNone || ledger.suspended || ledger.stop_since || ledger.attempt == 0)
    return TimeAccounting::kNothing;
  const bool again = ledger.failures_in_row > 0;
  if (!ledger.placed) {
    const bool draining = std::any_of(o.pods.begin(), o.pods.end(),
                                      [&](const Pod& pod) { return pod.attempt != ledger.attempt; });
    const bool pause = ledger.not_before && *ledger.not_before > now && ledger.withdrawals == 0;
    return again && (draining || pause) ? TimeAccounting::kRestart : TimeAccounting::kQueue;
  }
  const bool works = o.job.native
                         ? ledger.stepped && o.report && o.report->phase == rendezvous::GangPhase::kActive
                         : ledger.ready_since.has_value();
  if (works) return TimeAccounting::kProductive;
  return again || ledger.stepped ? TimeAccounting::kRestart : TimeAccounting::kStartup;
}

void AccountTime(const Observed& o, Ledger& ledger, Time now) {
  if (ledger.accounted != Time{} && now > ledger.accounted)
    if (Duration* book = BookOf(ledger.goodput, ledger.time_accounting)) *book += now - ledger.accounted;
  ledger.accounted = now;
  MoveRedone(o, ledger);
  ledger.time_accounting = TimeAccountingOf(o, ledger, now);
}

}  // namespace ringmaster::core
