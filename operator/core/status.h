// SPDX-License-Identifier: Apache-2.0

// A job's status: the ledger and the display.
//
// The *ledger* is the write-ahead log: it holds everything that must survive a crash of the operator, and is
// written before the operator acts on it. The *display* is computed from the ledger and from what was
// observed (summary.h). No decision reads it. Value types.
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

// Every reason that a condition can have. A closed, documented list. Append only.
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
  kAsDesired,
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
  // Ready: bound to a node and not running
  kImagePullFailed,
  kContainerNotCreated,
  // Admitted, again
  kInvalid,
  kNoHostPorts,
  // Succeeded, again
  kRank0Succeeded,
  kLauncherSucceeded,
  kChiefSucceeded,
  // Admitted, once more
  kNoPriorityClass,
  // Admitted, Scheduled, Ready, Suspended: Kueue
  kWaitingForQuota,
  kEvicted,
  kDeactivated,
  kNoKueue,
  kNoQueue,
  kNoFlavor,
  // Scheduled, Preempted
  kPreempting,
  kPreemptedToFewer,
  kPreemptedWhole,
  // Admitted, Scheduled, Ready, Suspended: Kueue, once more
  kQueued,
  // Admitted: no node has the label
  kNoTopologyLabel,
  // Scheduled, again
  kNoScheduler,
  // Admitted, a fourth time
  kOtherScheduler,
  // Ready, FabricReady: all workers run
  kPeersUnreachable,
};
const char* ReasonName(Reason reason);

struct ReasonText {
  Reason reason;
  const char* conditions;  // that it can appear on
  const char* text;        // its meaning and the remedy
};
// Every reason except kUnknown, in the order of the list above. The table in the documentation is generated
// from it.
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
  // Present only while they are true, as kstatus requires: Helm 4 and Flux read these two and Ready.
  kReconciling,
  kStalled,
  // Present only while another job has the room of this one's workers.
  kPreempted,
};
inline constexpr ConditionType kLastCondition = ConditionType::kPreempted;
inline constexpr size_t kConditionTypes = static_cast<size_t>(kLastCondition) + 1;
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

// For people only: no decision depends on it.
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
  kExit,             // the pod, or a trainer in it, ended with a non-zero exit code
  kLeft,             // the pod ended with 0 before the work was done, for example because it was drained
  kHang,             // a trainer made no progress
  kSilent,           // the agent is stopped or cut off: it is connected and sends nothing
  kNodeUnreachable,  // the node has sent no heartbeat for too long
  kStartupTimeout,   // all pods run and no step was made
  kCannotStart,      // it has a node and does not start: image, configuration, volumes
  kLostByNode,       // its node started again, or lost the container
};
inline constexpr Cause kLastCause = Cause::kLostByNode;
const char* CauseName(Cause cause);

struct Failure {
  int64_t attempt = 0;
  std::string pod;
  std::string node;
  int32_t exit_code = 0;
  Cause cause = Cause::kExit;
  std::string message;
  std::string ended_reason;  // OOMKilled, Evicted
  std::string rule;          // the rule that decided: "restart.rules[1]" or "default"
  Time at{};
  bool operator==(const Failure&) const = default;
};

struct Restarts {
  int32_t total = 0;
  int32_t charged = 0;
  int32_t without_progress = 0;
  bool operator==(const Restarts&) const = default;
};

// A pod that runs but takes no part in the gang.
struct Absence {
  std::string uid;
  Time since{};
  bool operator==(const Absence&) const = default;
};

// A failure that a lost node may explain (decide_suspects.cc): an unresponsive worker, or one that ended with
// an error, perhaps because a peer was lost. It is not charged until the state of the nodes is known. New
// pods avoid a suspected node where possible.
struct Suspect {
  std::string pod;
  std::string node;  // empty: the node of one of its peers
  Time since{};
  bool charge = false;  // if the node stays ready
  bool operator==(const Suspect&) const = default;
};

// As of a taint. kPreferNoSchedule: used only if no other node has room.
enum class NodeEffect : uint8_t { kNoSchedule, kPreferNoSchedule };
inline constexpr NodeEffect kLastNodeEffect = NodeEffect::kPreferNoSchedule;
const char* NodeEffectName(NodeEffect effect);

// New pods of the job are not scheduled to this node before `until`.
struct ExcludedNode {
  std::string name;
  std::string reason;
  Time until{};
  NodeEffect effect = NodeEffect::kNoSchedule;
  bool operator==(const ExcludedNode&) const = default;
};

// The account that the time of a job is charged to.
enum class TimeAccounting : uint8_t { kNothing, kQueue, kStartup, kRestart, kProductive };
const char* TimeAccountingName(TimeAccounting accounting);

struct Goodput {
  Duration productive{0};
  Duration queue{0};    // waiting for nodes
  Duration startup{0};  // from nodes to the first step, the first time and after a resume
  Duration restart{0};  // from a failure to the next step
  Duration redone{0};   // steps that were lost with all their copies and done again
  bool operator==(const Goodput&) const = default;
};

// The job gives up room, for another one of higher priority (core/preemption.h).
struct Preemption {
  std::string by;  // NAMESPACE/NAME of that job
  std::string by_uid;
  int32_t by_priority = 0;
  int32_t workers = 0;  // that stay; 0: all of them stop, after a checkpoint
  bool operator==(const Preemption&) const = default;
};

struct Ledger {
  int64_t attempt = 0;        // fencing token of the pod set; 0: none yet; never decreases, never used twice
  int32_t gang_size = 0;      // pods of this attempt; only gangs that restart in place can change it
  Time attempt_since{};       // when it was decided, or when it lost nodes that it needs
  bool placed = false;        // the gang of this attempt has the nodes that it needs
  int32_t withdrawals = 0;    // in a row: gangs that found no nodes in time
  std::string withdrawn_for;  // what the last of them lacked
  std::vector<ExcludedNode> excluded;  // sorted by name
  std::vector<Suspect> suspects;       // oldest first
  Restarts restarts;
  // Uids of the pods to replace: their failure is counted in `restarts`, or they were created under an
  // exclusion that has ended. Includes some pods that are gone, because the next leader may read this ledger
  // with an older view of the pods. Sorted.
  std::vector<std::string> counted;
  // Ranks of this attempt that ended with 0 and whose pod does not show that for ever: it is deleted or not
  // tracked. Not of gangs that restart in place. Sorted.
  std::vector<int32_t> succeeded;
  std::optional<Failure> last_failure;
  int32_t failures_in_row = 0;  // since the last committed step
  int64_t step_at_failure = 0;
  std::optional<Time> not_before;       // back-off: no pod is created earlier
  int32_t worker_failures = 0;          // of the report, examined so far
  rendezvous::Generation incident = 0;  // of programs: the newest failed incarnation that is accounted
  std::optional<Time> ready_since;      // when all pods of this attempt ran; unset by a new attempt
  std::vector<Absence> absent;          // only in place; in rank order
  int64_t base_step = 0;  // the reported step when the attempt began; the first step differs from it
  bool stepped = false;   // this attempt has made a step

  std::optional<Time> stop_since;  // a stop with a checkpoint was decided, and will be carried out
  bool suspended = false;          // no pod is left
  // Fewer workers: while the other job waits for room. None: until this job has nodes again.
  std::optional<Preemption> preemption;
  // Reports of stopped, finished or failed for this generation and older ones were already handled.
  std::optional<rendezvous::Generation> report_floor;

  std::optional<Time> active_since;  // unset while suspended
  Duration active_before{0};         // active time before that
  Outcome outcome = Outcome::kNone;
  Reason outcome_reason = Reason::kUnknown;
  std::string outcome_message;
  std::optional<Time> start_time;
  std::optional<Time> completion_time;

  Goodput goodput;  // up to `accounted`; later time is charged to `time_accounting`
  TimeAccounting time_accounting = TimeAccounting::kNothing;
  Time accounted{};
  int64_t lost_steps = 0;  // of the report, accounted so far
  bool operator==(const Ledger&) const = default;
};

// The workers that preemption leaves a job (core::Job::allowed).
int32_t AllowedWorkers(const Ledger& ledger);

struct ProgressView {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;
  int64_t checkpoint_step = -1;
  int64_t seconds_left = 0;  // that a program has estimated; 0: unknown
  bool operator==(const ProgressView&) const = default;
};

// How the pods of the attempt that have nodes are spread over the domains of a topology.
struct TopologySpread {
  std::string key;      // of the node label
  int32_t domains = 0;  // with at least one pod
  std::string pods;     // "rack-a: 4, rack-b: 2"
  bool operator==(const TopologySpread&) const = default;
};

struct Display {
  int64_t observed_spec_generation = 0;
  Phase phase = Phase::kPending;
  std::array<Condition, kConditionTypes> conditions;  // by ConditionType
  int32_t replicas = 0;
  int32_t ready_replicas = 0;
  rendezvous::Generation gang_generation = 0;
  std::string weights_hash;
  std::string transport;  // what carries gradients, as reported; empty: not reported
  std::string devices;    // GPUs that workers compute on; empty: none, or not reported
  std::optional<TopologySpread> topology;
  ProgressView progress;
  std::optional<Time> progress_at;  // when numbers and messages were last written
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
