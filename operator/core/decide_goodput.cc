// SPDX-License-Identifier: Apache-2.0

// Where the time of a job goes. Booked whenever the ledger is written anyway.
#include <algorithm>

#include "operator/core/decide_steps.h"

namespace ringmaster::core {
namespace {

Duration* BookOf(Goodput& goodput, Spending spending) {
  switch (spending) {
    case Spending::kNothing:
      return nullptr;
    case Spending::kQueue:
      return &goodput.queue;
    case Spending::kStartup:
      return &goodput.startup;
    case Spending::kRestart:
      return &goodput.restart;
    case Spending::kProductive:
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

Spending SpendingOf(const Observed& o, const Ledger& ledger, Time now) {
  if (ledger.outcome != Outcome::kNone || ledger.suspended || ledger.stop_since || ledger.attempt == 0)
    return Spending::kNothing;
  const bool again = ledger.failures_in_row > 0;
  if (!ledger.placed) {
    const bool draining = std::any_of(o.pods.begin(), o.pods.end(),
                                      [&](const Pod& pod) { return pod.attempt != ledger.attempt; });
    const bool pause = ledger.not_before && *ledger.not_before > now && ledger.withdrawals == 0;
    return again && (draining || pause) ? Spending::kRestart : Spending::kQueue;
  }
  const bool works = o.job.native
                         ? ledger.stepped && o.report && o.report->phase == rendezvous::GangPhase::kActive
                         : ledger.ready_since.has_value();
  if (works) return Spending::kProductive;
  return again || ledger.stepped ? Spending::kRestart : Spending::kStartup;
}

void Account(const Observed& o, Ledger& ledger, Time now) {
  if (ledger.accounted != Time{} && now > ledger.accounted)
    if (Duration* book = BookOf(ledger.goodput, ledger.spending)) *book += now - ledger.accounted;
  ledger.accounted = now;
  MoveRedone(o, ledger);
  ledger.spending = SpendingOf(o, ledger, now);
}

}  // namespace ringmaster::core
