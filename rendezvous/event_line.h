// SPDX-License-Identifier: Apache-2.0

// Events of a coordinator for users: the terminal, events.jsonl, Kubernetes Events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

enum class EventKind : uint8_t {
  kOther,
  kGenerationFormed,
  kWorkerFailed,
  kWorkerSilent,
  kWorkerLeaving,
  kPaused,
  kOperationFailed,  // between the members of a generation
  kDeviceFault,      // a GPU of a worker has a fault
  kStraggler,        // a member takes longer than the others (straggler_rule.h)
  kStragglerEnded,
  kPeersUnreachable,  // the first programs wait until all workers reach each other
};

// `text` is for people; programs read the other members.
struct EventLine {
  EventKind kind = EventKind::kOther;
  std::string text;
  // The worker that the event is about. Empty: all of them, or more about a failure that was reported before.
  std::string pod = {};
  std::string evidence = {};  // kWorkerFailed: why the worker counts as lost, as in FailureRecord
  // kGenerationFormed:
  Generation generation = 0;
  int64_t start_step = -1;                // the state from which it continues; -1: the loader decides
  std::vector<std::string> workers = {};  // pods of its members, by rank
  // From the moment when the loss of a member was noticed. nullopt: no member was lost.
  std::optional<Duration> recovery = {};
};

// Returns the reason, which scripts match.
constexpr const char* ReasonOf(EventKind kind) {
  switch (kind) {
    case EventKind::kOther:
      break;
    case EventKind::kGenerationFormed:
      return "GenerationFormed";
    case EventKind::kWorkerFailed:
      return "WorkerFailed";
    case EventKind::kWorkerSilent:
      return "WorkerSilent";
    case EventKind::kWorkerLeaving:
      return "WorkerLeaving";
    case EventKind::kPaused:
      return "Paused";
    case EventKind::kOperationFailed:
      return "OperationFailed";
    case EventKind::kDeviceFault:
      return "DeviceFault";
    case EventKind::kStraggler:
      return "Straggler";
    case EventKind::kStragglerEnded:
      return "StragglerRecovered";
    case EventKind::kPeersUnreachable:
      return "PeersUnreachable";
  }
  return "Coordinator";
}

constexpr bool IsWarning(EventKind kind) {
  return kind == EventKind::kWorkerFailed || kind == EventKind::kWorkerSilent || kind == EventKind::kPaused ||
         kind == EventKind::kOperationFailed || kind == EventKind::kDeviceFault ||
         kind == EventKind::kStraggler || kind == EventKind::kPeersUnreachable;
}

}  // namespace ringmaster::rendezvous
