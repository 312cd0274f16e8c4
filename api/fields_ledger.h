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
// As many as a job can have pods, of two attempts.
inline constexpr int kLedgerPods = 8192;

template <>
struct Table<LedgerAbsence> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields =
      std::tuple(F("uid", &LedgerAbsence::uid, kLedgerWord, "A pod that runs and takes no part in the gang."),
                 F("since", &LedgerAbsence::since, kLedgerTime, "Since when."));
};

template <>
struct Table<LedgerSuspect> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("pod", &LedgerSuspect::pod, kLedgerWord, "A worker that fell silent, or ended with an error."),
      F("node", &LedgerSuspect::node, {.max_length = 253, .form = Form::kAny},
        "Its node, which may be lost. Empty: one of its peers' may be."),
      F("since", &LedgerSuspect::since, kLedgerTime, "Since when."),
      F("charge", &LedgerSuspect::charge, {}, "It is charged when the node proves to be well."));
};

template <>
struct Table<LedgerTime> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("productiveMicros", &LedgerTime::productiveMicros, kLedgerNumber, "Time in steps."),
      F("queueMicros", &LedgerTime::queueMicros, kLedgerNumber, "Time waiting for nodes."),
      F("startupMicros", &LedgerTime::startupMicros, kLedgerNumber, "Time from nodes to the first step."),
      F("restartMicros", &LedgerTime::restartMicros, kLedgerNumber, "Time from a failure to the next step."),
      F("redoneMicros", &LedgerTime::redoneMicros, kLedgerNumber, "Time in steps that had to be done again."),
      F("spending", &LedgerTime::spending, kLedgerWord, "Into which of them the time goes now."),
      F("accounted", &LedgerTime::accounted, kLedgerTime, "Until when all of them are up to date."));
};

template <>
struct Table<Ledger> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("gangSize", &Ledger::gangSize, kLedgerCount, "Pods of this attempt."),
      F("attemptSince", &Ledger::attemptSince, kLedgerTime, "When the attempt was decided."),
      F("placed", &Ledger::placed, {}, "The gang of this attempt has had its nodes."),
      F("withdrawals", &Ledger::withdrawals, kLedgerCount, "Gangs in a row that found no nodes in time."),
      F("withdrawnFor", &Ledger::withdrawnFor, kLedgerMessage, "What the last of them missed."),
      F("counted", &Ledger::counted, {.max_length = 64, .max_items = kLedgerPods, .form = Form::kAny},
        "Uids of pods that exist and whose failure is counted."),
      F("suspects", &Ledger::suspects, {.max_items = kLedgerPods},
        "Workers that fell silent, while it is not known whether their nodes are lost."),
      F("endedReason", &Ledger::endedReason, kLedgerWord,
        "What the container of the last failure ended with."),
      F("failuresInRow", &Ledger::failuresInRow, kLedgerCount, "Failures since a step was committed."),
      F("stepAtFailure", &Ledger::stepAtFailure, kLedgerNumber, "Step at the last failure."),
      F("notBefore", &Ledger::notBefore, kLedgerTime, "End of the back-off."),
      F("workerFailures", &Ledger::workerFailures, kLedgerCount,
        "Failures that the coordinator told of, judged so far."),
      F("readySince", &Ledger::readySince, kLedgerTime, "Since when all pods of this attempt run."),
      F("absent", &Ledger::absent, {.max_items = kLedgerPods}, "Pods that run and take no part in the gang."),
      F("baseStep", &Ledger::baseStep, kLedgerNumber, "Step when the attempt began."),
      F("stepped", &Ledger::stepped, {}, "This attempt has shown a step."),
      F("stopSince", &Ledger::stopSince, kLedgerTime, "Since when a stop is carried through."),
      F("suspended", &Ledger::suspended, {}, "No pod is left."),
      F("reportFloor", &Ledger::reportFloor, {.min = 0},
        "Newest generation of the gang whose end was dealt with."),
      F("activeSince", &Ledger::activeSince, kLedgerTime, "Since when the job is active."),
      F("activeBeforeMicros", &Ledger::activeBeforeMicros, kLedgerNumber, "Time active before that."),
      F("outcome", &Ledger::outcome, {.max_length = 16, .values = "|Succeeded|Failed"}, "How it ended."),
      F("outcomeReason", &Ledger::outcomeReason, kLedgerWord, "Why, in one word."),
      F("outcomeMessage", &Ledger::outcomeMessage, kLedgerMessage, "Why, for people."),
      F("lostSteps", &Ledger::lostSteps, kLedgerNumber, "Steps done again, accounted so far."),
      F("time", &Ledger::time, {}, "Where the time went."),
      F("progressAt", &Ledger::progressAt, kLedgerTime, "When progress was written last."));
};

}  // namespace ringmaster::api
