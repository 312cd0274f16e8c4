// SPDX-License-Identifier: Apache-2.0

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
//  I8. Deletions name the uid they mean, and force is used only on pods that ended, were counted as lost,
//      overstayed their grace, or sit on a node that has been unreachable for longer than the limit.
//  I9. No pod is made before the back-off is over.
//  I10. Counters never fall, and no second of a job's life is booked twice.
//  I11. A gang is released as a whole and only into free room; gangs in each other's way do not stay there:
//       one that has not found its nodes in time gives up what it has.
//  I12. Pods are made after what stands beside them, which is made anew when somebody removes it.
//  I13. After a refusal nothing is asked again before its pause is over.
//  I14. New pods stay off excluded nodes until the exclusion ends.
//  I15. The gang follows the newest leader: pods that a deposed one makes late never take part, and are
//       drained.
//  I16. A worker that fell silent is not charged for the loss of its node: not before it is known whether the
//       node is well, and not when it is not. New pods are told to keep off the node meanwhile. Nor is one
//       that ended with an error, where no coordinator keeps the others going, charged for the loss of a
//       peer's.
// Two more belong to the controller around it: after a write, no decision from a view that has not seen it;
// after a write of unknown outcome, a live read first (control/controller.h).
#pragma once

#include <cstdint>
#include <limits>
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

// What a view holds of thousands of pods; the words come on top.
struct PodState {
  std::string name;
  std::string uid;  // of this incarnation: a replacement has the same name and another uid
  int64_t attempt = 0;
  int32_t rank = 0;
  PodPhase phase = PodPhase::kPending;
  bool gated = false;     // held back from the scheduler by our gate
  int32_t exit_code = 0;  // 128 + signal for signals
  std::string node;       // empty: none was found yet
  Time created{};
  Time placed{};   // when it got its node
  Time started{};  // when it began to run; until then, when it was made
  std::optional<Time> ended;
  std::optional<Time> delete_by;          // it was told to end, and should be gone by then
  std::optional<Time> unreachable_since;  // of its node

  bool alive() const { return phase == PodPhase::kPending || phase == PodPhase::kRunning; }
  bool deleting() const { return delete_by.has_value(); }
  bool bound() const { return !node.empty(); }
  bool operator==(const PodState&) const = default;
};

// What is told of a pod, mostly nothing.
struct PodDetails {
  std::string message;       // what it left as its last words
  std::string ended_reason;  // of its container or of the pod: OOMKilled, Evicted, Error
  // Why it does not run: of the first container that waits (ImagePullBackOff, CreateContainerConfigError) or
  // of the scheduler (Unschedulable).
  std::string waiting_reason;
  std::string waiting_message;
  bool operator==(const PodDetails&) const = default;
};

struct Pod : PodState, PodDetails {
  std::vector<std::string> conditions;  // types that are true
  bool operator==(const Pod&) const = default;
};

// What the coordinator is told about one job. A standing order: it holds until the next one.
struct SetGang {
  int64_t attempt = 0;  // of the pods that may take part; those of others are drained first
  int32_t min = 1;
  int32_t max = 1;
  int32_t target = 1;
  bool stop = false;  // checkpoint, then let everybody go
  int32_t slots = 1;  // ranks of a pod; min, max and target count pods
  bool operator==(const SetGang&) const = default;
};

// Makes what stands beside the pods of an attempt (Service, configuration, gang object) where it is missing.
// May be asked for again at any time: what is there and right stays as it is.
struct PrepareGang {
  int64_t attempt = 0;
  int32_t size = 1;  // pods
  int32_t min = 1;   // with how many of them the gang may start
  bool operator==(const PrepareGang&) const = default;
};

// Who sees to it that a gang gets its nodes as a whole.
enum class GangProvider : uint8_t {
  kNone,       // nobody: every pod for itself
  kGate,       // we: pods are made gated, and released together when there is room
  kScheduler,  // a scheduler that knows gangs (native, Volcano, coscheduling)
};

// Whether the gated pods of the current attempt would find nodes now (core/capacity.h computes it).
struct Fit {
  int32_t room = std::numeric_limits<int32_t>::max();  // for so many of them
  std::string missing;  // when not for all: `needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room`
  bool operator==(const Fit&) const = default;
};

// Why the world does not take a write: told by its answer, or known beforehand.
enum class RefusalKind : uint8_t {
  kQuota,
  kPodSecurity,
  kAdmission,  // a webhook or policy
  kForbidden,  // our rights do not suffice
  kInvalid,    // the object is wrong, for example through workers.template
  kNameTaken,  // something else has the name of a pod
  kNamespaceEnding,
  kNoGangProvider,  // scheduling.gang asks for one that the cluster does not have
  kNoHostPorts,     // all ports for hostNetwork are allotted
};
struct Refusal {
  RefusalKind kind = RefusalKind::kForbidden;
  std::string message;  // what was asked, and the answer
  Time since{};         // of the first of its row
  Time retry_at{};      // no pod is made earlier
  bool operator==(const Refusal&) const = default;
};

struct Observed {
  Job job;
  Status status;
  std::vector<Pod> pods;                     // sorted by (attempt, rank)
  std::optional<rendezvous::Report> report;  // native only
  std::optional<SetGang> order;              // what the coordinator was last told by this process
  std::optional<PrepareGang> prepared;       // what stands beside the pods is all there, for this
  GangProvider provider = GangProvider::kNone;
  Fit fit;  // with kGate
  // Of the nodes of its pods and suspects: those that are not ready, or gone. Sorted. nullopt: nobody watches
  // nodes here, and none is ever suspected.
  std::optional<std::vector<std::string>> not_ready_nodes;
  // Not empty: the wish cannot be carried out, and why. Of `job` only identity and `suspend` are meant then.
  std::string invalid;
  std::optional<Refusal> preflight;  // known beforehand: pods are not even tried
  std::optional<Refusal> refusal;  // of the last write about pods; the controller keeps it until one succeeds
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
  int32_t size = 1;  // pods of this attempt
  bool gated = false;
  std::vector<std::string> excluded_nodes{};  // sorted
  std::vector<std::string> avoided_nodes{};   // sorted: not there, as long as there is room elsewhere
  bool operator==(const CreatePod&) const = default;
};
struct PodRef {
  std::string name;
  std::string uid;
  bool operator==(const PodRef&) const = default;
};
// Takes the gates of these pods away: all of them have room, or none is touched (kConflict).
struct ReleaseGang {
  int64_t attempt = 0;
  std::vector<PodRef> pods{};
  bool operator==(const ReleaseGang&) const = default;
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
using Action = std::variant<SetStatus, CreatePod, DeletePod, SetGang, DeleteJob, PrepareGang, ReleaseGang>;

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

// `<job>-<attempt>-<rank>`: a host name, for names of jobs are short (api).
std::string PodName(const std::string& job, int64_t attempt, int32_t rank);

// For logs and failing seeds.
std::string ToString(const Action& action);
std::string ToString(const Decision& decision);
std::string ToString(const Observed& observed, Time now);

}  // namespace ringmaster::core
