// SPDX-License-Identifier: Apache-2.0

// The input and the output of Decide: Observed and Decision. Sorted value types: equal inputs give equal
// decisions.
//
// Invariants; the simulator (tests/sim/controller) checks them by number:
//  I1. The ledger is the write-ahead log: a decision holds either one SetStatus or worker actions, never
//      both. A counted failure, a stop and a new attempt are written first. The actions follow once that
//      write is observed.
//  I2. Names are functions of (job, attempt, rank), so creating an object twice is harmless, and so is a lost
//      reply.
//  I3. Drain before create: no pod is created while one of another attempt exists. At any time the live pods
//      are of one attempt, with at most one pod per rank.
//  I4. The attempt number never decreases and is never used for two pod sets.
//  I5. Charged restarts never exceed maxRestarts. A charged failure is counted exactly once, and before the
//      operator removes its pod.
//  I6. An ended job is never started again. Its only actions are deletions by cleanPods and by TTL. With
//      cleanPods Running it ends without live pods.
//  I7. A suspended job has no pods, and the next ones belong to a new attempt.
//  I8. A deletion names the pod's uid. Force is used only for pods that ended, were counted as lost,
//      overstayed their grace period, or are on a node that has been unreachable for longer than the limit.
//  I9. No pod is created before the back-off is over.
//  I10. Counters never decrease, and no second of a job's life is accounted twice.
//  I11. A gang is released as a whole and only when there is room for it. With the operator's gate no pod is
//       created before its place is reserved, so a gang that waits for room holds nothing. Gangs do not block
//       each other for ever: one that has not found its nodes in time, or of which some pods are refused,
//       releases what it holds, and one that holds nothing is not withdrawn.
//  I12. Pods are created after the supporting objects, which are created again when they are deleted.
//  I13. After a refusal nothing is requested again before its pause is over.
//  I14. New pods avoid excluded nodes until the exclusion ends, and lost ones while others have room.
//  I15. The gang follows the newest leader: pods that a deposed leader creates late never take part, and are
//       drained.
//  I16. An unresponsive worker is not charged before the state of its node is known, nor when the node is
//       lost, and new pods avoid the node until then. A worker that ended with an error, in a framework whose
//       gang ends as a whole, is not charged for the loss of a peer's node.
//  I17. A worker whose node started again, or lost its container, is not charged.
//  I18. A pod is held until its end is accounted. So a gang whose workers all run or have succeeded is not
//       replaced, even when a pod that succeeded was collected or the operator was away.
//  I19. No pod is held for ever: not by a job that has ended, was deleted or left its pods behind. Orphaned
//       pods run on.
//  I20. A program that failed starts again only after its failure was counted and the back-off is over.
//  I21. A job without a coordinator succeeds only when every rank that decides about it ended with exit code
//       0: all of them, or rank 0 alone.
//  I22. No pod of a job in a queue of Kueue is created before its Workload is admitted, or after it is
//       evicted, and no worker beyond those that were admitted.
//  I23. The admission of a Workload is cleared, and the Workload of a job that continues is deleted, only
//       when no pod of the job is left.
//  I24. A job is preempted only by a waiting job of higher priority that asks for it, only when that job fits
//       then, and to no fewer workers than its minimum, or as a whole. Whole jobs stop with a checkpoint.
//       Preempted jobs resume by themselves.
//  I25. With the operator's gate, the pods of an attempt with a required topology have nodes of one domain;
//       with a preferred one, a gang gets its places in as few domains as its room allows, and no pod waits
//       for its domain for long while another one has room.
//  I26. With the operator's gate, nothing is created for a gang that waits for room and has no pods: its
//       supporting objects follow once places are reserved for it. Those of an earlier attempt may be updated
//       while its pods end.
//  I27. With the operator's gate, a gang gets places only in its turn: it takes no room in which one that is
//       ahead of it in the queue could start, and leaves enough for the head of the queue to start before it
//       ends. A new leader keeps to the same order.
//  I28. Work that is done is not done again: once the leader sees a pod whose agent exited because the job is
//       finished, the job succeeds, also when the coordinator that reported it is gone.
//  I29. A worker is not given up with its node while the coordinator hears its agent.
//
// The controller adds two (control/controller.h): after a write, no decision from a view that does not
// include it; after a write of unknown outcome, a live read first.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/time.h"
#include "operator/core/job.h"
#include "operator/core/kueue_workload.h"
#include "operator/core/status.h"
#include "rendezvous/report.h"

namespace ringmaster::core {

enum class PodPhase : uint8_t { kPending, kRunning, kSucceeded, kFailed };

// The part of a pod that is always set. A view holds thousands of them.
struct PodState {
  std::string name;
  std::string uid;  // a replacement has the same name and another uid
  int64_t attempt = 0;
  int32_t rank = 0;
  PodPhase phase = PodPhase::kPending;
  bool gated = false;    // the operator's scheduling gate holds it back
  bool lingers = false;  // its worker has ended, and another container still runs
  bool lost = false;     // it failed because its node started again or lost its container
  // Held by the operator's finalizer: after its end it stays, even when it is deleted, until UntrackPod or
  // DeletePod.
  bool tracked = false;
  bool collected = false;  // it had ended when its deletion was requested, so its end is its own
  bool finished = false;   // it succeeded, and its agent left a note that the work of the job is done
  int32_t exit_code = 0;   // 128 + signal for signals
  std::string node;        // empty: not scheduled yet
  Time created{};
  Time placed{};   // when it was bound to its node
  Time started{};  // when it started to run; before that, `created`
  std::optional<Time> ended;
  std::optional<Time> delete_by;          // the end of its grace period, once its deletion was requested
  std::optional<Time> unreachable_since;  // since when its node is

  bool alive() const { return phase == PodPhase::kPending || phase == PodPhase::kRunning; }
  bool deleting() const { return delete_by.has_value(); }
  // Its deletion was requested while it ran: its exit code says nothing about its work.
  bool interrupted() const { return deleting() && !collected; }
  bool bound() const { return !node.empty(); }
  bool operator==(const PodState&) const = default;
};

// Reported pod details; usually empty.
struct PodDetails {
  std::string message;       // its termination message
  std::string ended_reason;  // of the container or the pod: OOMKilled, Evicted, Error
  // Why it does not run: from the first waiting container (ImagePullBackOff, CreateContainerConfigError) or
  // from the scheduler (Unschedulable).
  std::string waiting_reason;
  std::string waiting_message;
  // The scheduler that it waits for, which has reported nothing about it yet; empty: it has.
  std::string awaits_scheduler;
  bool operator==(const PodDetails&) const = default;
};

struct Pod : PodState, PodDetails {
  std::vector<std::string> conditions;  // the types of those that are true
  bool operator==(const Pod&) const = default;
};

struct PodRef {
  std::string name;
  std::string uid;
  bool operator==(const PodRef&) const = default;
};

// The order to a job's coordinator. It holds until the next one.
struct SetGang {
  int64_t attempt = 0;  // of the pods that may take part; older ones are drained first
  int32_t min = 1;
  int32_t max = 1;
  int32_t target = 1;
  bool stop = false;     // write a checkpoint, then end all workers
  int32_t slots = 1;     // ranks per worker; min, max and target count workers
  bool library = false;  // the trainers are programs of the user
  bool programs = false;
  Duration stop_grace{0};                 // of programs
  rendezvous::Generation accounted = 0;   // of programs: failures of this incarnation and older ones
  rendezvous::ProgramPolicy policy = {};  // of programs
  bool operator==(const SetGang&) const = default;
};

// Asks whether pods like those of the attempt would be admitted, and creates nothing. A refusal is like that
// of a pod.
struct TryPods {
  int64_t attempt = 0;
  int32_t size = 1;  // pods
  bool operator==(const TryPods&) const = default;
};

// Creates the supporting objects of an attempt: Service, ConfigMaps, gang object. Idempotent: correct objects
// stay as they are, missing and wrong ones are created or updated.
struct PrepareGang {
  int64_t attempt = 0;
  int32_t size = 1;  // pods
  int32_t min = 1;   // the fewest pods that the gang may start with
  bool operator==(const PrepareGang&) const = default;
};

// What ensures that a gang gets all of its nodes or none.
enum class GangProvider : uint8_t {
  kNone,       // nothing: each pod is scheduled alone
  kGate,       // the operator: it reserves room for all, creates the pods gated, and releases them together
  kScheduler,  // a gang scheduler (native, Volcano, coscheduling)
};

// Whether the nodes have room for the waiting pods of the current attempt: those that do not exist yet, and
// the gated ones (computed by core/capacity.h).
struct Fit {
  int32_t room = std::numeric_limits<int32_t>::max();  // for this many of them, including the reserved ones
  std::string missing{};  // set when not for all: `needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room`
  std::vector<int32_t> reserved{};  // ranks of the waiting pods that have a reserved place; sorted
  // Ranks of pods without a node that may use only a domain (core/capacity.h) without room for them, while
  // another one has room: they must be created again. Sorted.
  std::vector<int32_t> stranded{};
  std::string preempts{};     // the jobs that make room: `ml/small (4 to 2 workers), ml/old (all)`
  std::string claims_note{};  // of pods without a node: why their claims are not counted (core/device_room.h)
  bool unread = false;        // it is not known yet: the devices of the cluster are being read
  bool operator==(const Fit&) const = default;
};

// Why the API server refuses a write, as it answered or as the backend predicts.
enum class RefusalKind : uint8_t {
  kQuota,
  kPodSecurity,
  kAdmission,     // a webhook or policy
  kForbidden,     // the operator lacks a right
  kInvalid,       // the object is invalid, for example because of workers.template
  kInvalidLabel,  // Kueue does not know the value of a label of the job
  kNameTaken,     // another object has the name of a pod
  kNamespaceEnding,
  kNoGangProvider,   // the cluster does not have the provider of scheduling.gang
  kNoHostPorts,      // all ports for hostNetwork are allocated
  kNoPriorityClass,  // the cluster does not have a PriorityClass of the job
  kNoTopologyLabel,  // no node has the label of scheduling.topology.required
  kOtherScheduler,   // a template names a scheduler that does not know the provider's gangs
  kNoQueue,          // the provider does not have the queue of scheduling.queue
};
struct Refusal {
  RefusalKind kind = RefusalKind::kForbidden;
  std::string message;  // the request and the answer
  Time since{};         // of the first one in a row
  Time retry_at{};      // no pod is created earlier
  bool operator==(const Refusal&) const = default;
};

// A node that started again while this process watched it.
struct NodeRestart {
  std::string name;
  Time at{};  // when it was observed
  bool operator==(const NodeRestart&) const = default;
};

struct Observed {
  Job job;  // an empty uid: there is no such job any more, only strays
  Status status;
  std::vector<Pod> pods;  // sorted by (attempt, rank)
  // Pods that an earlier job of this name has left behind: the garbage collector deletes them, or they were
  // orphaned and run on.
  std::vector<Pod> strays;
  // Workloads of earlier jobs of this name that our finalizer holds.
  std::vector<PodRef> stray_workloads;
  std::optional<rendezvous::Report> report;  // only in place
  std::optional<SetGang> order;              // the last order of this process to the coordinator
  std::optional<PrepareGang> prepared;       // the supporting objects are complete, for this request
  // Pods of this attempt may be refused for a reason that TryPods finds, and it has not succeeded yet.
  bool untried = false;
  GangProvider provider = GangProvider::kNone;
  // With kScheduler: it places a gang in one step, so a gang without any node holds none. Others keep nodes
  // for a part of a gang for a while, which no pod shows.
  bool all_at_once = false;
  // `auto` has chosen Kubernetes' own gangs, and their scheduler has not placed the gang of this attempt
  // whole yet. If IsTorn, `auto` does not choose them again.
  bool native_on_trial = false;
  // PodGroups of the job exist, whose deletion nothing has requested.
  bool holds_groups = false;
  Fit fit;                            // with kGate
  std::optional<Preemption> preempt;  // another job asks for room of this one (core/preemption.h)
  bool preemptor_waits = false;       // the job that the ledger's preemption names still waits for room
  // Those nodes of its pods and suspects that are not ready, or gone. Sorted. nullopt: this backend does not
  // watch nodes, and no node is ever suspected.
  std::optional<std::vector<std::string>> not_ready_nodes;
  // Those nodes of its pods and suspects that started again. Sorted by name.
  std::vector<NodeRestart> restarted_nodes;
  std::optional<TopologySpread> spread;  // of a job with a topology
  // Not empty: the spec is invalid, and why. Only identity, `suspend`, the deadline, the time to live and the
  // cleaning of pods of `job` are meaningful then.
  std::string invalid;
  std::optional<Refusal> preflight;  // predicted: no pod is requested
  std::optional<Refusal> refusal;    // of the last write about pods, until one succeeds
  std::optional<Quota> quota;        // set for a job in a queue of Kueue, or with a Workload of earlier
  bool operator==(const Observed&) const = default;
};

struct SetStatus {
  Status status;
  bool deferrable = false;  // it changes only progress and messages: the controller may write it later
  bool operator==(const SetStatus&) const = default;
};
struct CreatePod {
  std::string name;
  int64_t attempt = 0;
  int32_t rank = 0;
  int32_t size = 1;  // pods of this attempt
  bool gated = false;
  std::vector<std::string> excluded_nodes{};  // sorted
  std::vector<std::string> avoided_nodes{};   // sorted; used only when no other node has room
  std::string domain{};  // only nodes of this domain; set by backends, from the reserved place
  bool operator==(const CreatePod&) const = default;
};
// Reserves places for the waiting pods of these ranks, and for no others. All of them must have room,
// otherwise none keeps a place (kConflict). A reservation ends with the attempt, with the process, and when
// the job is suspended or ends.
struct ReserveRoom {
  int64_t attempt = 0;
  std::vector<int32_t> ranks{};  // sorted
  std::vector<std::string> excluded_nodes{};
  std::vector<std::string> avoided_nodes{};
  bool operator==(const ReserveRoom&) const = default;
};
// Removes the gates of these pods. All of them must have reserved places, otherwise none is changed
// (kConflict).
struct ReleaseGang {
  int64_t attempt = 0;
  std::vector<PodRef> pods{};
  bool operator==(const ReleaseGang&) const = default;
};
// Deletes the pod and removes the finalizer that holds it.
struct DeletePod {
  std::string name;
  std::string uid;
  Duration grace{0};  // 0: by force
  bool force() const { return grace == Duration{0}; }
  bool operator==(const DeletePod&) const = default;
};
// Removes the finalizer that holds the pod. A pod that is gone is not an error.
struct UntrackPod {
  std::string name;
  std::string uid;
  bool operator==(const UntrackPod&) const = default;
};
// Creates the job's Workload, or updates the one of this name and revision, which holds no quota.
struct MakeWorkload {
  std::string name{};  // empty: create
  std::string uid{};
  uint64_t revision = 0;
  std::string queue{};
  std::vector<PodSet> pod_sets{};
  bool slice = false;  // as the next two, of core::Workload
  std::string replaces{};
  std::string chain{};  // empty: this one is the first
  int32_t surplus = 0;  // the same
  bool operator==(const MakeWorkload&) const = default;
};
// Makes the job the owner of a ready-made Workload.
struct AdoptWorkload {
  std::string name;
  std::string uid;
  uint64_t revision = 0;
  bool operator==(const AdoptWorkload&) const = default;
};
// Lowers the counts of an admitted slice, whose quota falls with them.
struct ResizeWorkload {
  std::string name;
  std::string uid;
  uint64_t revision = 0;
  std::vector<PodSet> pod_sets{};
  bool operator==(const ResizeWorkload&) const = default;
};
struct SetWorkloadStatus {
  enum class Change : uint8_t {
    kClear,     // no pod is left after an eviction: Kueue may give the quota to others
    kFinish,    // the job has ended
    kReport,    // whether its pods are ready
    kGiveBack,  // quota of workers that have left
  };
  std::string name;
  std::string uid;
  uint64_t revision = 0;
  Change change = Change::kReport;
  std::string reason{};                           // kClear: of the eviction; kFinish: Succeeded or Failed
  std::string message{};                          // kClear, kFinish
  PodsReady pods_ready = PodsReady::kUnreported;  // kReport
  std::vector<Grant> unused{};  // kGiveBack: pods of each pod set that do not exist any more
  bool operator==(const SetWorkloadStatus&) const = default;
};
// Requests the deletion of a Workload; our finalizer holds it.
struct DeleteWorkload {
  std::string name;
  std::string uid;
  uint64_t revision = 0;  // 0: whatever it is
  bool operator==(const DeleteWorkload&) const = default;
};
// Removes our finalizer. A Workload that is gone is not an error.
struct ReleaseWorkload {
  std::string name;
  std::string uid;
  bool operator==(const ReleaseWorkload&) const = default;
};
struct DeleteJob {
  bool operator==(const DeleteJob&) const = default;
};
// Deletes the PodGroups of a job without pods: for its queue a gang scheduler would count them as a gang that
// is to come.
struct DropGroups {
  bool operator==(const DropGroups&) const = default;
};
using Action = std::variant<SetStatus, CreatePod, DeletePod, UntrackPod, SetGang, DeleteJob, DropGroups,
                            TryPods, PrepareGang, ReserveRoom, ReleaseGang, MakeWorkload, AdoptWorkload,
                            ResizeWorkload, SetWorkloadStatus, DeleteWorkload, ReleaseWorkload>;
template <class A>
inline constexpr bool kIsAboutWorkload =
    std::is_same_v<A, MakeWorkload> || std::is_same_v<A, AdoptWorkload> ||
    std::is_same_v<A, ResizeWorkload> || std::is_same_v<A, SetWorkloadStatus> ||
    std::is_same_v<A, DeleteWorkload> || std::is_same_v<A, ReleaseWorkload>;
inline bool IsAboutWorkload(const Action& action) {
  return std::visit([](const auto& a) { return kIsAboutWorkload<std::decay_t<decltype(a)>>; }, action);
}

// A Kubernetes event. Sent after the actions of its decision were acknowledged, possibly twice after a crash.
struct Event {
  bool warning = false;
  std::string reason;
  std::string message;
  std::string of{};  // another job, namespace/name, which gets the event; the message then follows the name
                     // of this one
  bool operator==(const Event&) const = default;
};

struct Decision {
  std::vector<Action> actions;
  std::vector<Event> events;
  std::optional<Time> requeue_at;
  std::string reason;
  bool operator==(const Decision&) const = default;
};

// Returns `<job>-<attempt>-<rank>`, or `<job>-<attempt>-<role>-<index>` for a pod of another role than
// worker; a valid host name: the API limits the length of job names.
std::string PodName(const std::string& job, int64_t attempt, int32_t rank);

// For logs and failing seeds.
std::string ToString(const Action& action);
const char* ActionName(const Action& action);
std::string ToString(const Decision& decision);
std::string ToString(const Observed& observed, Time now);

}  // namespace ringmaster::core
