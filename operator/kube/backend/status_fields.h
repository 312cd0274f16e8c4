// SPDX-License-Identifier: Apache-2.0

// Maps each member of the core's status to the API's, once for both directions. `Coder` copies in one
// direction (StatusEncoder and StatusDecoder in status_codec.cc); `A` is the API's struct and `C` the core's,
// one of them const. Values that are only derived for display are not here. Pure functions.
#pragma once

#include "api/ledger.h"
#include "api/training_job.h"
#include "operator/core/status.h"

namespace ringmaster::kube {

inline constexpr size_t kMaxMessage = 4096;
inline constexpr size_t kMaxWord = 300;
inline constexpr size_t kMaxFabric = 64;    // of status.fabric
inline constexpr size_t kMaxDevices = 256;  // of status.devices
inline constexpr size_t kMaxSpread = 512;   // of status.topology.pods
inline constexpr size_t kMaxReason = 64;

template <class Coder, class A, class C>
void SuspectFields(const Coder& coder, A& a, C& c) {
  coder.Plain(a.pod, c.pod);
  coder.Text(a.node, c.node, kMaxWord);
  coder.At(a.since, c.since);
  coder.Plain(a.charge, c.charge);
}

template <class Coder, class A, class C>
void AbsenceFields(const Coder& coder, A& a, C& c) {
  coder.Plain(a.uid, c.uid);
  coder.At(a.since, c.since);
}

template <class Coder, class A, class C>
void ExcludedFields(const Coder& coder, A& a, C& c) {
  coder.Plain(a.name, c.name);
  coder.Word(a.effect, c.effect, core::NodeEffectName, core::kLastNodeEffect, core::NodeEffect::kNoSchedule);
  coder.Text(a.reason, c.reason, kMaxWord);
  coder.At(a.until, c.until);
}

template <class Coder, class A, class C>
void FailureFields(const Coder& coder, A& a, C& c) {
  coder.Plain(a.attempt, c.attempt);
  coder.Text(a.pod, c.pod, kMaxWord);
  coder.Text(a.node, c.node, kMaxWord);
  coder.Plain(a.exitCode, c.exit_code);
  coder.Word(a.reason, c.cause, core::CauseName, core::kLastCause, core::Cause::kExit);
  coder.Text(a.message, c.message, kMaxMessage);
  coder.At(a.time, c.at);
  coder.Text(a.rule, c.rule, kMaxWord);
}

template <class Coder, class A, class C>
void TimeFields(const Coder& coder, A& a, C& c) {
  coder.Span(a.productiveMicros, c.goodput.productive);
  coder.Span(a.queueMicros, c.goodput.queue);
  coder.Span(a.startupMicros, c.goodput.startup);
  coder.Span(a.restartMicros, c.goodput.restart);
  coder.Span(a.redoneMicros, c.goodput.redone);
  coder.WordOrNone(a.accounting, c.time_accounting, core::TimeAccountingName,
                   core::TimeAccounting::kProductive, core::TimeAccounting::kNothing);
  coder.At(a.accounted, c.accounted);
}

template <class Coder, class A, class C>
void PreemptionFields(const Coder& coder, A& a, C& c) {
  coder.Text(a.by, c.by, kMaxWord);
  coder.Plain(a.byUid, c.by_uid);
  coder.Plain(a.byPriority, c.by_priority);
  coder.Plain(a.workers, c.workers);
}

template <class Coder, class A, class C>
void TopologyFields(const Coder& coder, A& a, C& c) {
  coder.Text(a.key, c.key, kMaxWord);
  coder.Plain(a.domains, c.domains);
  coder.Text(a.pods, c.pods, kMaxSpread);
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
template <class Coder, class A, class C>
void LedgerFields(const Coder& coder, A& a, C& c) {
  coder.Plain(a.gangSize, c.gang_size);
  coder.At(a.attemptSince, c.attempt_since);
  coder.Plain(a.placed, c.placed);
  coder.Plain(a.withdrawals, c.withdrawals);
  coder.Text(a.withdrawnFor, c.withdrawn_for, kMaxMessage);
  coder.Plain(a.counted, c.counted);
  coder.Ranks(a.succeeded, c.succeeded);
  coder.List(a.suspects, c.suspects, [&](auto& x, auto& y) { SuspectFields(coder, x, y); });
  coder.Plain(a.failuresInRow, c.failures_in_row);
  coder.Plain(a.stepAtFailure, c.step_at_failure);
  coder.At(a.notBefore, c.not_before);
  coder.Plain(a.workerFailures, c.worker_failures);
  coder.Generation(a.incident, c.incident);
  coder.At(a.readySince, c.ready_since);
  coder.List(a.absent, c.absent, [&](auto& x, auto& y) { AbsenceFields(coder, x, y); });
  coder.Plain(a.baseStep, c.base_step);
  coder.Plain(a.stepped, c.stepped);
  coder.At(a.stopSince, c.stop_since);
  coder.Plain(a.suspended, c.suspended);
  coder.Maybe(a.preemption, c.preemption, [&](auto& x, auto& y) { PreemptionFields(coder, x, y); });
  coder.Generation(a.reportFloor, c.report_floor);
  coder.At(a.activeSince, c.active_since);
  coder.Span(a.activeBeforeMicros, c.active_before);
  coder.WordOrNone(a.outcome, c.outcome, OutcomeName, core::Outcome::kFailed, core::Outcome::kNone);
  coder.Reason(a.outcomeReason, c.outcome_reason);
  coder.Text(a.outcomeMessage, c.outcome_message, kMaxMessage);
  coder.Plain(a.lostSteps, c.lost_steps);
  TimeFields(coder, a.time, c);
}

// The status without its ledger, conditions, last failure and checkpoint.
template <class Coder, class A, class C>
void StatusFields(const Coder& coder, A& a, C& c) {
  auto& ledger = c.ledger;
  auto& display = c.display;
  coder.Plain(a.observedGeneration, display.observed_spec_generation);
  coder.Word(a.phase, display.phase, core::PhaseName, core::Phase::kFailed, core::Phase::kPending);
  coder.Plain(a.attempt, ledger.attempt);
  coder.Generation(a.generation, display.gang_generation);
  coder.Plain(a.replicas, display.replicas);
  coder.Plain(a.readyReplicas, display.ready_replicas);
  coder.Plain(a.restarts.total, ledger.restarts.total);
  coder.Plain(a.restarts.charged, ledger.restarts.charged);
  coder.Plain(a.restarts.withoutProgress, ledger.restarts.without_progress);
  coder.List(a.excludedNodes, ledger.excluded, [&](auto& x, auto& y) { ExcludedFields(coder, x, y); });
  coder.Plain(a.progress.step, display.progress.step);
  coder.Plain(a.progress.totalSteps, display.progress.total_steps);
  coder.Number(a.progress.samplesPerSecond, display.progress.samples_per_second);
  coder.Number(a.progress.loss, display.progress.loss);
  coder.Text(a.fabric, display.transport, kMaxFabric);
  coder.Text(a.devices, display.devices, kMaxDevices);
  coder.Maybe(a.topology, display.topology, [&](auto& x, auto& y) { TopologyFields(coder, x, y); });
  coder.Plain(a.weightsHash, display.weights_hash);
  coder.At(a.startTime, ledger.start_time);
  coder.At(a.completionTime, ledger.completion_time);
}

}  // namespace ringmaster::kube
