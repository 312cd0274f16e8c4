// SPDX-License-Identifier: Apache-2.0

// Which member of the core's status is which member of the API's: said once, for both directions. `Way`
// copies from one side to the other (status_codec.cc has WriteWay and ReadWay); `A` and `C` are the API's and
// the core's struct, one of them const. What is only derived for people is not here. Pure functions.
#pragma once

#include "api/ledger.h"
#include "api/training_job.h"
#include "operator/core/status.h"

namespace ringmaster::kube {

inline constexpr size_t kMaxMessage = 4096;
inline constexpr size_t kMaxWord = 300;
inline constexpr size_t kMaxFabric = 64;    // of status.fabric
inline constexpr size_t kMaxDevices = 256;  // of status.devices
inline constexpr size_t kMaxReason = 64;

template <class Way, class A, class C>
void SuspectFields(const Way& way, A& a, C& c) {
  way.Plain(a.pod, c.pod);
  way.Text(a.node, c.node, kMaxWord);
  way.At(a.since, c.since);
  way.Plain(a.charge, c.charge);
}

template <class Way, class A, class C>
void AbsenceFields(const Way& way, A& a, C& c) {
  way.Plain(a.uid, c.uid);
  way.At(a.since, c.since);
}

template <class Way, class A, class C>
void ExcludedFields(const Way& way, A& a, C& c) {
  way.Plain(a.name, c.name);
  way.Text(a.reason, c.reason, kMaxWord);
  way.At(a.until, c.until);
}

template <class Way, class A, class C>
void FailureFields(const Way& way, A& a, C& c) {
  way.Plain(a.attempt, c.attempt);
  way.Text(a.pod, c.pod, kMaxWord);
  way.Text(a.node, c.node, kMaxWord);
  way.Plain(a.exitCode, c.exit_code);
  way.Word(a.reason, c.cause, core::CauseName, core::Cause::kCannotStart, core::Cause::kExit);
  way.Text(a.message, c.message, kMaxMessage);
  way.At(a.time, c.at);
  way.Text(a.rule, c.rule, kMaxWord);
}

template <class Way, class A, class C>
void TimeFields(const Way& way, A& a, C& c) {
  way.Span(a.productiveMicros, c.goodput.productive);
  way.Span(a.queueMicros, c.goodput.queue);
  way.Span(a.startupMicros, c.goodput.startup);
  way.Span(a.restartMicros, c.goodput.restart);
  way.Span(a.redoneMicros, c.goodput.redone);
  way.WordOrNone(a.spending, c.time_accounting, core::TimeAccountingName, core::TimeAccounting::kProductive,
                 core::TimeAccounting::kNothing);
  way.At(a.accounted, c.accounted);
}

inline const char* OutcomeName(core::Outcome outcome) {
  switch (outcome) {
    case core::Outcome::kNone:
      return "";
    case core::Outcome::kSucceeded:
      return "Succeeded";
    case core::Outcome::kFailed:
      return "Failed";
  }
  return "";
}

// status.ledger
template <class Way, class A, class C>
void LedgerFields(const Way& way, A& a, C& c) {
  way.Plain(a.gangSize, c.gang_size);
  way.At(a.attemptSince, c.attempt_since);
  way.Plain(a.placed, c.placed);
  way.Plain(a.withdrawals, c.withdrawals);
  way.Text(a.withdrawnFor, c.withdrawn_for, kMaxMessage);
  way.Plain(a.counted, c.counted);
  way.List(a.suspects, c.suspects, [&](auto& x, auto& y) { SuspectFields(way, x, y); });
  way.Plain(a.failuresInRow, c.failures_in_row);
  way.Plain(a.stepAtFailure, c.step_at_failure);
  way.At(a.notBefore, c.not_before);
  way.Plain(a.workerFailures, c.worker_failures);
  way.At(a.readySince, c.ready_since);
  way.List(a.absent, c.absent, [&](auto& x, auto& y) { AbsenceFields(way, x, y); });
  way.Plain(a.baseStep, c.base_step);
  way.Plain(a.stepped, c.stepped);
  way.At(a.stopSince, c.stop_since);
  way.Plain(a.suspended, c.suspended);
  way.Generation(a.reportFloor, c.report_floor);
  way.At(a.activeSince, c.active_since);
  way.Span(a.activeBeforeMicros, c.active_before);
  way.WordOrNone(a.outcome, c.outcome, OutcomeName, core::Outcome::kFailed, core::Outcome::kNone);
  way.Reason(a.outcomeReason, c.outcome_reason);
  way.Text(a.outcomeMessage, c.outcome_message, kMaxMessage);
  way.Plain(a.lostSteps, c.lost_steps);
  TimeFields(way, a.time, c);
}

// The status proper, but for conditions and what stands in both: the last failure, the checkpoint.
template <class Way, class A, class C>
void StatusFields(const Way& way, A& a, C& c) {
  auto& ledger = c.ledger;
  auto& display = c.display;
  way.Plain(a.observedGeneration, display.observed_spec_generation);
  way.Word(a.phase, display.phase, core::PhaseName, core::Phase::kFailed, core::Phase::kPending);
  way.Plain(a.attempt, ledger.attempt);
  way.Generation(a.generation, display.gang_generation);
  way.Plain(a.replicas, display.replicas);
  way.Plain(a.readyReplicas, display.ready_replicas);
  way.Plain(a.restarts.total, ledger.restarts.total);
  way.Plain(a.restarts.charged, ledger.restarts.charged);
  way.Plain(a.restarts.withoutProgress, ledger.restarts.without_progress);
  way.List(a.excludedNodes, ledger.excluded, [&](auto& x, auto& y) { ExcludedFields(way, x, y); });
  way.Plain(a.progress.step, display.progress.step);
  way.Plain(a.progress.totalSteps, display.progress.total_steps);
  way.Number(a.progress.samplesPerSecond, display.progress.samples_per_second);
  way.Number(a.progress.loss, display.progress.loss);
  way.Text(a.fabric, display.transport, kMaxFabric);
  way.Text(a.devices, display.devices, kMaxDevices);
  way.Plain(a.weightsHash, display.weights_hash);
  way.At(a.startTime, ledger.start_time);
  way.At(a.completionTime, ledger.completion_time);
}

}  // namespace ringmaster::kube
