// SPDX-License-Identifier: Apache-2.0

// What the controller remembers about a job. The *ledger* is the write-ahead log: whatever must survive a
// crash of the controller stands in it before anything is done about it. The *display* is computed from the
// ledger and from what was observed (summary.h), and no decision reads it. Value types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::core {

enum class Outcome : uint8_t { kNone, kSucceeded, kFailed };

// Every reason a condition can carry: a closed list, documented once. Append only.
enum class Reason : uint8_t {
  kUnknown,
  // Admitted, Suspended
  kAccepted,
  kSuspendRequested,
  kStopping,
  kNotSuspended,
  // Scheduled, Ready
  kAllPodsPlaced,
  kWaitingForPods,
  kAllPodsRunning,
  kBackOff,
  // FabricReady
  kGangFormed,
  kTcpFallback,
  kGangForming,
  kGangPaused,
  kNotReported,
  // Progressing
  kStepAdvanced,
  kStarting,
  kEnded,
  // Degraded
  kCheckpointFailing,
  kBelowTarget,
  kAsWished,
  // Succeeded
  kAllStepsDone,
  kAllPodsSucceeded,
  kNotFinished,
  // Failed
  kNotFailed,
  kBadConfiguration,
  kRuleMatched,
  kRestartBudgetSpent,
  kNoProgress,
  kDeadlineExceeded,
  kTrainingFailed,
  // Scheduled: on the way to nodes
  kPreparing,
  kWaitingForCapacity,
  kUnschedulable,
  kGangTimeout,
  // Admitted, Scheduled: refused by the cluster
  kQuotaExceeded,
  kPodSecurity,
  kAdmissionRefused,
  kForbidden,
  kInvalidPod,
  kNameTaken,
  kNamespaceEnding,
  kNoGangProvider,
  // Ready: on a node and not running
  kImagePullFailed,
  kContainerNotCreated,
  // Admitted, again
  kInvalid,
  kNoHostPorts,
};
const char* ReasonName(Reason reason);

struct ReasonText {
  Reason reason;
  const char* conditions;  // on which it can appear
  const char* text;        // what it means, and what to do
};
// Every reason but kUnknown, in the order of the list above: the table in the documentation is made from it.
const std::vector<ReasonText>& AllReasons();

enum class ConditionType : uint8_t {
  kAdmitted,
  kScheduled,
  kReady,
  kFabricReady,
  kProgressing,
  kDegraded,
  kSuspended,
  kSucceeded,
  kFailed,
};
inline constexpr size_t kConditionTypes = 9;
const char* ConditionName(ConditionType type);

enum class Truth : uint8_t { kUnknown, kFalse, kTrue };
const char* TruthName(Truth truth);

struct Condition {
  Truth truth = Truth::kUnknown;
  Reason reason = Reason::kUnknown;
  std::string message;
  Time since{};  // of the last change of `truth`
  bool operator==(const Condition&) const = default;
};

// For people only: no code decides by it.
enum class Phase : uint8_t {
  kPending,
  kStarting,
  kRunning,
  kResizing,
  kRestarting,
  kSuspending,
  kSuspended,
  kSucceeded,
  kFailed,
};
inline constexpr Phase kLastPhase = Phase::kFailed;
const char* PhaseName(Phase phase);

enum class Cause : uint8_t {
  kExit,             // the pod, or a trainer in it, ended with a code that is not 0
  kLeft,             // the pod ended with 0 before the work was done (drained by somebody)
  kHang,             // a trainer stood still
  kSilent,           // the agent is stopped or cut off: its connection is there and nothing comes
  kNodeUnreachable,  // the node has not been heard of for too long
  kStartupTimeout,   // all pods run and no step came
  kCannotStart,      // it has a node and does not run: image, configuration, volumes
};
const char* CauseName(Cause cause);

struct Failure {
  int64_t attempt = 0;
  std::string pod;
  std::string node;
  int32_t exit_code = 0;
  Cause cause = Cause::kExit;
  std::string message;
  std::string ended_reason;  // OOMKilled, Evicted
  std::string rule;          // what decided: "restart.rules[1]" or "default"
  Time at{};
  bool operator==(const Failure&) const = default;
};

struct Restarts {
  int32_t total = 0;
  int32_t charged = 0;
  int32_t without_progress = 0;
  bool operator==(const Restarts&) const = default;
};

// A pod that runs and takes no part in the gang.
struct Absence {
  std::string uid;
  Time since{};
  bool operator==(const Absence&) const = default;
};

// A worker that fell silent, and whose node may turn out to be lost. Until that is known its failure is not
// charged, and new pods go elsewhere where they can (suspects.cc). Or one that ended with an error, perhaps
// because a peer was lost with its node.
struct Suspect {
  std::string pod;
  std::string node;  // empty: one of its peers'
  Time since{};
  bool charge = false;  // when the node proves to be well
  bool operator==(const Suspect&) const = default;
};

// New pods of the job do not go there until then.
struct ExcludedNode {
  std::string name;
  std::string reason;
  Time until{};
  bool operator==(const ExcludedNode&) const = default;
};

// What the time of a job goes into.
enum class TimeAccounting : uint8_t { kNothing, kQueue, kStartup, kRestart, kProductive };
const char* TimeAccountingName(TimeAccounting time_accounting);

struct Goodput {
  Duration productive{0};
  Duration queue{0};    // waiting for nodes
  Duration startup{0};  // from nodes to the first step, the first time and after a resume
  Duration restart{0};  // from a failure to the next step
  Duration redone{0};   // steps that were done, lost with all their copies, and done again
  bool operator==(const Goodput&) const = default;
};

struct Ledger {
  int64_t attempt = 0;    // fencing token of the pod set; 0: none was made yet; never falls, never used twice
  int32_t gang_size = 0;  // of this attempt: frameworks other than native cannot change it
  Time attempt_since{};   // when it was decided, or when it lost the nodes that it needs
  bool placed = false;    // the gang of this attempt has the nodes that it needs
  int32_t withdrawals = 0;             // gangs in a row that found no nodes in time
  std::string withdrawn_for;           // what the last of them missed
  std::vector<ExcludedNode> excluded;  // sorted by name
  std::vector<Suspect> suspects;       // oldest first
  Restarts restarts;
  // Uids of pods that are to be replaced: their failure is in `restarts`, or they were made under an
  // exclusion that has ended. Also of some that are gone: the next leader may see them still, beside this
  // ledger. Sorted.
  std::vector<std::string> counted;
  std::optional<Failure> last_failure;
  int32_t failures_in_row = 0;  // since a step was committed
  int64_t step_at_failure = 0;
  std::optional<Time> not_before;   // back-off: no pod is made earlier
  int32_t worker_failures = 0;      // of the report, judged so far
  std::optional<Time> ready_since;  // all pods of this attempt ran at that time; unset by a new attempt
  std::vector<Absence> absent;      // native; by pod, in rank order
  int64_t base_step = 0;            // of the report when the attempt began: a first step differs
  bool stepped = false;             // this attempt has shown a step

  std::optional<Time> stop_since;  // a stop with checkpoint was decided, and is carried through
  bool suspended = false;          // no pod is left
  // A report that says stopped, finished or failed about this generation or an older one was dealt with.
  std::optional<rendezvous::Generation> report_floor;

  std::optional<Time> active_since;  // unset while suspended
  Duration active_before{0};         // time active before that
  Outcome outcome = Outcome::kNone;
  Reason outcome_reason = Reason::kUnknown;
  std::string outcome_message;
  std::optional<Time> start_time;
  std::optional<Time> completion_time;

  Goodput goodput;  // up to `accounted`; the time since then goes to `time_accounting`
  TimeAccounting time_accounting = TimeAccounting::kNothing;
  Time accounted{};
  int64_t lost_steps = 0;  // of the report, accounted so far
  bool operator==(const Ledger&) const = default;
};

struct ProgressView {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;
  int64_t checkpoint_step = -1;
  bool operator==(const ProgressView&) const = default;
};

struct Display {
  int64_t observed_spec_generation = 0;
  Phase phase = Phase::kPending;
  std::array<Condition, kConditionTypes> conditions;  // by ConditionType
  int32_t replicas = 0;
  int32_t ready_replicas = 0;
  rendezvous::Generation gang_generation = 0;
  std::string weights_hash;
  std::string transport;  // what carries gradients, as measured; empty: nobody has told
  std::string devices;    // GPUs that workers compute on; empty: none, or nobody has told
  ProgressView progress;
  std::optional<Time> progress_at;  // when numbers and words were last written
  const Condition& Of(ConditionType type) const { return conditions[static_cast<size_t>(type)]; }
  bool operator==(const Display&) const = default;
};

struct Status {
  Ledger ledger;
  Display display;
  bool ended() const { return ledger.outcome != Outcome::kNone; }
  bool operator==(const Status&) const = default;
};

}  // namespace ringmaster::core
