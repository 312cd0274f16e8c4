// Everything a decision may look at, and everything it may ask for. Sorted value types: equal worlds give
// equal decisions.
//
// Invariants; the simulator (tests/sim/controller) checks them by number:
//  I1. The ledger is the write-ahead log: a decision holds either one SetStatus or worker actions, never
//      both. A failure is counted, a stop or a new attempt is decided in a status write that was seen, and
//      only then acted on.
//  I2. Names are functions of (job, attempt, rank): creating twice is harmless, so is a lost reply.
//  I3. Drain before create: while a pod of another attempt exists, none is made. No two attempts are alive at
//      a time, and no two pods of one attempt and rank.
//  I4. An attempt number never falls and is never used for two pod sets.
//  I5. Charged restarts never exceed maxRestarts; every charged failure whose pod we remove was counted
//      first, once.
//  I6. An ended job is never started again: the only actions are deletions by cleanPods and by TTL, and under
//      cleanPods Running it ends with no live pod.
//  I7. A suspended job has no pod, and none is made before an attempt of its own.
//  I8. Deletions name the uid they mean, and force is used only on pods that ended, were counted as lost, or
//      overstayed their grace.
//  I9. No pod is made before the back-off is over.
// Two more belong to the controller around it: after a write, no decision from a view that has not seen it;
// after a write of unknown outcome, a live read first (control/controller.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "operator/core/job.h"
#include "operator/core/status.h"
#include "rendezvous/report.h"

namespace ringmaster::core {

enum class PodPhase : uint8_t { kPending, kRunning, kSucceeded, kFailed };

struct Pod {
  std::string name;
  std::string uid;  // of this incarnation: a replacement has the same name and another uid
  int64_t attempt = 0;
  int32_t rank = 0;
  PodPhase phase = PodPhase::kPending;
  int32_t exit_code = 0;  // 128 + signal for signals
  std::string message;    // what it left as its last words
  std::string node;
  std::vector<std::string> conditions;  // types that are true
  Time started{};
  std::optional<Time> ended;
  std::optional<Time> delete_by;          // it was told to end, and should be gone by then
  std::optional<Time> unreachable_since;  // of its node

  bool alive() const { return phase == PodPhase::kPending || phase == PodPhase::kRunning; }
  bool deleting() const { return delete_by.has_value(); }
  bool operator==(const Pod&) const = default;
};

// What the coordinator is told about one job. A standing order: it holds until the next one.
struct SetGang {
  int64_t attempt = 0;  // of the pods that may take part; those of others are drained first
  int32_t min = 1;
  int32_t max = 1;
  int32_t target = 1;
  bool stop = false;  // checkpoint, then let everybody go
  bool operator==(const SetGang&) const = default;
};

struct Observed {
  Job job;
  Status status;
  std::vector<Pod> pods;                     // sorted by (attempt, rank)
  std::optional<rendezvous::Report> report;  // native only
  std::optional<SetGang> order;              // what the coordinator was last told by this process
  bool operator==(const Observed&) const = default;
};

struct SetStatus {
  Status status;
  bool operator==(const SetStatus&) const = default;
};
struct CreatePod {
  std::string name;
  int64_t attempt = 0;
  int32_t rank = 0;
  bool operator==(const CreatePod&) const = default;
};
struct DeletePod {
  std::string name;
  std::string uid;
  Duration grace{0};  // 0: at once, without asking
  bool force() const { return grace == Duration{0}; }
  bool operator==(const DeletePod&) const = default;
};
struct DeleteJob {
  bool operator==(const DeleteJob&) const = default;
};
using Action = std::variant<SetStatus, CreatePod, DeletePod, SetGang, DeleteJob>;

// For people. Sent after the actions of its decision were acknowledged; may come twice after a crash.
struct Event {
  bool warning = false;
  std::string reason;
  std::string message;
  bool operator==(const Event&) const = default;
};

struct Decision {
  std::vector<Action> actions;
  std::vector<Event> events;
  std::optional<Time> requeue_at;
  std::string reason;
  bool operator==(const Decision&) const = default;
};

// `<job>-<attempt>-<rank>`
std::string PodName(const std::string& job, int64_t attempt, int32_t rank);

// For logs and failing seeds.
std::string ToString(const Action& action);
std::string ToString(const Decision& decision);
std::string ToString(const Observed& observed, Time now);

}  // namespace ringmaster::core
