// SPDX-License-Identifier: Apache-2.0

// Field tables of the operator's write-ahead log (ledger.h).
#pragma once

#include "api/fields.h"
#include "api/fields_spec.h"
#include "api/ledger.h"

namespace ringmaster::api {

inline constexpr Rules kLedgerCount = {.min = 0, .max = 2'147'483'647};
inline constexpr Rules kLedgerNumber = {.min = 0, .max = kMaxSafeInteger};
inline constexpr Rules kLedgerTime = {.max_length = 40, .form = Form::kAny};
inline constexpr Rules kLedgerWord = {.max_length = 64, .form = Form::kAny};
inline constexpr Rules kLedgerMessage = {.max_length = 32'768, .form = Form::kAny};
// The maximum number of pods of a job, for two attempts.
inline constexpr int kLedgerPods = 8192;

template <>
struct Table<LedgerAbsence> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields =
      std::tuple(F("uid", &LedgerAbsence::uid, kLedgerWord, "Uid of a running pod that is not in the gang."),
                 F("since", &LedgerAbsence::since, kLedgerTime, "Start of the absence."));
};

template <>
struct Table<LedgerSuspect> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("pod", &LedgerSuspect::pod, kLedgerWord, "Worker that became unresponsive or ended with an error."),
      F("node", &LedgerSuspect::node, {.max_length = 253, .form = Form::kAny},
        "Node of the worker, which may be lost. Empty: the node of a peer may be lost."),
      F("since", &LedgerSuspect::since, kLedgerTime, "Time when it became a suspect."),
      F("charge", &LedgerSuspect::charge, {},
        "Whether to charge the failure if the node proves to be ready."));
};

template <>
struct Table<LedgerPreemption> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("by", &LedgerPreemption::by, {.max_length = 317, .form = Form::kAny},
        "Namespace and name of the job that needs the room."),
      F("byUid", &LedgerPreemption::byUid, kLedgerWord, "Its uid."),
      F("byPriority", &LedgerPreemption::byPriority, {.min = -2'147'483'648, .max = 2'147'483'647},
        "Its priority."),
      F("workers", &LedgerPreemption::workers, kLedgerCount, "Workers that stay; 0: all of them stop."));
};

template <>
struct Table<LedgerTime> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("productiveMicros", &LedgerTime::productiveMicros, kLedgerNumber, "Time in steps."),
      F("queueMicros", &LedgerTime::queueMicros, kLedgerNumber, "Time waiting for nodes."),
      F("startupMicros", &LedgerTime::startupMicros, kLedgerNumber, "Time from nodes to the first step."),
      F("restartMicros", &LedgerTime::restartMicros, kLedgerNumber, "Time from a failure to the next step."),
      F("redoneMicros", &LedgerTime::redoneMicros, kLedgerNumber, "Time in steps that were repeated."),
      F("accounting", &LedgerTime::accounting, kLedgerWord, "Category of the current time."),
      F("accounted", &LedgerTime::accounted, kLedgerTime, "Time up to which all categories are accounted."));
};

template <>
struct Table<Ledger> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("gangSize", &Ledger::gangSize, kLedgerCount, "Number of pods of this attempt."),
      F("attemptSince", &Ledger::attemptSince, kLedgerTime, "Time when the operator decided on the attempt."),
      F("placed", &Ledger::placed, {}, "Whether the gang of this attempt was scheduled."),
      F("withdrawals", &Ledger::withdrawals, kLedgerCount,
        "Consecutive gangs that were not scheduled in time."),
      F("withdrawnFor", &Ledger::withdrawnFor, kLedgerMessage, "Resource that the last of them lacked."),
      F("counted", &Ledger::counted, {.max_length = 64, .max_items = kLedgerPods, .form = Form::kAny},
        "Uids of existing pods whose failure is counted."),
      F("succeeded", &Ledger::succeeded, {.max_length = 65'536, .form = Form::kAny},
        "Ranks of this attempt that ended with 0 and whose pod may be gone, such as 0-3,7."),
      F("suspects", &Ledger::suspects, {.max_items = kLedgerPods},
        "Unresponsive workers whose nodes may be lost."),
      F("endedReason", &Ledger::endedReason, kLedgerWord,
        "Termination reason of the container of the last failure."),
      F("failuresInRow", &Ledger::failuresInRow, kLedgerCount, "Failures since the last committed step."),
      F("stepAtFailure", &Ledger::stepAtFailure, kLedgerNumber, "Step at the last failure."),
      F("notBefore", &Ledger::notBefore, kLedgerTime, "End of the back-off."),
      F("workerFailures", &Ledger::workerFailures, kLedgerCount,
        "Number of processed failures that the coordinator reported."),
      F("incident", &Ledger::incident, {.min = 0},
        "Generation of the newest failure of programs that is accounted."),
      F("readySince", &Ledger::readySince, kLedgerTime, "Time since when all pods of this attempt run."),
      F("absent", &Ledger::absent, {.max_items = kLedgerPods}, "Running pods that are not in the gang."),
      F("baseStep", &Ledger::baseStep, kLedgerNumber, "Step at the start of the attempt."),
      F("stepped", &Ledger::stepped, {}, "Whether this attempt has reported a step."),
      F("stopSince", &Ledger::stopSince, kLedgerTime, "Time when the current stop began."),
      F("suspended", &Ledger::suspended, {}, "Whether the job is suspended and has no pod."),
      F("preemption", &Ledger::preemption, {}, "Room that the job gives up for another one."),
      F("reportFloor", &Ledger::reportFloor, {.min = 0},
        "Newest generation of the gang whose end was processed."),
      F("activeSince", &Ledger::activeSince, kLedgerTime, "Time since when the job is active."),
      F("activeBeforeMicros", &Ledger::activeBeforeMicros, kLedgerNumber, "Active time before that."),
      F("outcome", &Ledger::outcome, {.max_length = 16, .values = "|Succeeded|Failed"},
        "Outcome of the job."),
      F("outcomeReason", &Ledger::outcomeReason, kLedgerWord, "Reason of the outcome in one word."),
      F("outcomeMessage", &Ledger::outcomeMessage, kLedgerMessage,
        "Human-readable explanation of the outcome."),
      F("lostSteps", &Ledger::lostSteps, kLedgerNumber, "Number of accounted repeated steps."),
      F("time", &Ledger::time, {}, "Time by category."),
      F("progressAt", &Ledger::progressAt, kLedgerTime, "Time when progress was last written."));
};

}  // namespace ringmaster::api
