// SPDX-License-Identifier: Apache-2.0

// status.ledger: the write-ahead log of the operator. The operator writes a decision here before it acts on
// it, if a crash must not lose the decision and no other field of the status has it. Internal: other programs
// must not read or edit it. Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringmaster::api {

struct LedgerAbsence {
  std::string uid;
  std::string since;
  bool operator==(const LedgerAbsence&) const = default;
};

struct LedgerSuspect {
  std::string pod;
  std::string node;
  std::string since;
  bool charge = false;
  bool operator==(const LedgerSuspect&) const = default;
};

struct LedgerPreemption {
  std::string by;  // namespace/name
  std::string byUid;
  int32_t byPriority = 0;
  int32_t workers = 0;
  bool operator==(const LedgerPreemption&) const = default;
};

// Durations are in microseconds. Times are RFC 3339 with microseconds; an empty time was never set.
struct LedgerTime {
  int64_t productiveMicros = 0;
  int64_t queueMicros = 0;
  int64_t startupMicros = 0;
  int64_t restartMicros = 0;
  int64_t redoneMicros = 0;
  std::string accounting;
  std::string accounted;
  bool operator==(const LedgerTime&) const = default;
};

struct Ledger {
  int32_t gangSize = 0;
  std::string attemptSince;
  bool placed = false;
  int32_t withdrawals = 0;
  std::string withdrawnFor;
  std::vector<std::string> counted;
  std::string succeeded;  // "0-3,7"
  std::vector<LedgerSuspect> suspects;
  std::string endedReason;  // of the last failure
  int32_t failuresInRow = 0;
  int64_t stepAtFailure = 0;
  std::string notBefore;
  int32_t workerFailures = 0;
  int64_t incident = 0;
  std::string readySince;
  std::vector<LedgerAbsence> absent;
  int64_t baseStep = 0;
  bool stepped = false;
  std::string stopSince;
  bool suspended = false;
  std::optional<LedgerPreemption> preemption;
  std::optional<int64_t> reportFloor;
  std::string activeSince;
  int64_t activeBeforeMicros = 0;
  std::string outcome;  // Succeeded | Failed
  std::string outcomeReason;
  std::string outcomeMessage;
  int64_t lostSteps = 0;
  LedgerTime time;
  std::string progressAt;
  bool operator==(const Ledger&) const = default;
};

}  // namespace ringmaster::api
