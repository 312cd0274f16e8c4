// SPDX-License-Identifier: Apache-2.0

#include "operator/core/status.h"

#include <limits>

#include "base/check.h"

namespace ringmaster::core {
namespace {

struct Row {
  Reason reason;
  const char* name;
  const char* conditions;
  const char* text;
};

// In the order of the enumeration.
constexpr Row kRows[] = {
    {Reason::kUnknown, "Unknown", "", ""},
    {Reason::kAccepted, "Accepted", "Admitted", "The job is accepted; its workers may be created."},
    {Reason::kSuspendRequested, "SuspendRequested", "Admitted, Ready, Suspended",
     "`spec.suspend` is true and no worker is left."},
    {Reason::kStopping, "Stopping", "Suspended, Scheduled, Ready, Progressing",
     "A suspension was requested: the workers exit, after a checkpoint if the job writes any."},
    {Reason::kNotSuspended, "NotSuspended", "Suspended", "The job is not suspended."},
    {Reason::kAllPodsPlaced, "AllPodsPlaced", "Scheduled", "Every worker has a node."},
    {Reason::kWaitingForPods, "WaitingForPods", "Scheduled, Ready",
     "Workers are being created or are starting."},
    {Reason::kAllPodsRunning, "AllPodsRunning", "Ready", "Every worker runs."},
    {Reason::kBackOff, "BackOff", "Scheduled, Ready",
     "The next workers are created after a pause; the message says why."},
    {Reason::kGangFormed, "GangFormed", "FabricReady", "The workers are connected and train."},
    {Reason::kTcpFallback, "TCPFallback", "FabricReady",
     "RDMA was requested with `network.fallback: warn`, and gradients travel over TCP."},
    {Reason::kGangForming, "GangForming", "FabricReady", "The workers are connecting to each other."},
    {Reason::kGangPaused, "GangPaused", "FabricReady, Progressing",
     "Fewer than `workers.min` workers take part: they keep the state in memory and wait."},
    {Reason::kNotReported, "NotReported", "FabricReady, Progressing", "This framework does not report it."},
    {Reason::kStepAdvanced, "StepAdvanced", "Progressing", "Steps are being committed."},
    {Reason::kStarting, "Starting", "Progressing", "No step was committed yet."},
    {Reason::kEnded, "Ended", "Scheduled, Ready, FabricReady, Progressing",
     "The job has ended or is suspended: no gang is running."},
    {Reason::kCheckpointFailing, "CheckpointFailing", "Degraded",
     "The job trains, but the newest checkpoint could not be written: a failure of all workers now would "
     "lose more steps than usual. The message says why; the next checkpoint is written as scheduled."},
    {Reason::kBelowTarget, "BelowTarget", "Degraded", "The job runs with fewer workers than requested."},
    {Reason::kAsDesired, "AsDesired", "Degraded", "Nothing is missing."},
    {Reason::kAllStepsDone, "AllStepsDone", "Ready, Succeeded",
     "Every step is committed and the final checkpoint is written."},
    {Reason::kAllPodsSucceeded, "AllPodsSucceeded", "Ready, Succeeded",
     "Every worker ended with exit code 0."},
    {Reason::kNotFinished, "NotFinished", "Succeeded", "The job is not done."},
    {Reason::kNotFailed, "NotFailed", "Failed", "The job has not failed."},
    {Reason::kBadConfiguration, "BadConfiguration", "Failed",
     "A worker ended with exit code 64: a restart cannot help. Correct what the message names."},
    {Reason::kRuleMatched, "RuleMatched", "Failed",
     "A rule of `restart.rules` says that this failure ends the job."},
    {Reason::kRestartBudgetSpent, "RestartBudgetSpent", "Failed",
     "More charged failures than `restart.maxRestarts`; the message names the last one."},
    {Reason::kNoProgress, "NoProgress", "Failed",
     "More failures in a row than `restart.maxWithoutProgress`, without a step in between."},
    {Reason::kDeadlineExceeded, "DeadlineExceeded", "Failed",
     "The job was active for longer than `lifecycle.activeDeadlineSeconds`."},
    {Reason::kTrainingFailed, "TrainingFailed", "Failed",
     "The coordinator gave up: a restart cannot repair what the message names."},
    {Reason::kPreparing, "Preparing", "Scheduled",
     "The Service, ConfigMaps and gang object of the attempt are being created."},
    {Reason::kWaitingForCapacity, "WaitingForCapacity", "Scheduled",
     "The workers are created when the nodes have room for all of them; the message says what is missing."},
    {Reason::kUnschedulable, "Unschedulable", "Scheduled",
     "The scheduler finds no node; the message is the scheduler's. Free or add nodes, or correct requests, "
     "selectors "
     "and tolerations."},
    {Reason::kGangTimeout, "GangTimeout", "Scheduled",
     "Not all workers found nodes within `scheduling.timeoutSeconds`: they were withdrawn and are created "
     "again after a pause."},
    {Reason::kQuotaExceeded, "QuotaExceeded", "Admitted",
     "A ResourceQuota of the namespace refuses the workers. Raise it, or free resources; the operator "
     "retries "
     "automatically."},
    {Reason::kPodSecurity, "PodSecurity", "Admitted",
     "The Pod Security level of the namespace refuses the workers. Change the fields the message names, or "
     "the label of the namespace."},
    {Reason::kAdmissionRefused, "AdmissionRefused", "Admitted",
     "An admission webhook or policy refuses the workers; the message is the policy's."},
    {Reason::kForbidden, "Forbidden", "Admitted",
     "The operator lacks a permission. Compare its ClusterRole with the one of the installation."},
    {Reason::kInvalidPod, "InvalidPod", "Admitted",
     "The API server refuses the worker as invalid. Correct `workers.template`."},
    {Reason::kNameTaken, "NameTaken", "Admitted",
     "Another object in the namespace has the name of a worker or of a supporting object. Remove it, or "
     "rename the job."},
    {Reason::kNamespaceEnding, "NamespaceEnding", "Admitted", "The namespace is being deleted."},
    {Reason::kNoGangProvider, "NoGangProvider", "Admitted",
     "`scheduling.gang` names a provider that the cluster does not have. Install it, or use `auto` or "
     "`gate`."},
    {Reason::kImagePullFailed, "ImagePullFailed", "Ready",
     "An image cannot be pulled. Correct the name, or give `imagePullSecrets` in `workers.template`."},
    {Reason::kContainerNotCreated, "ContainerNotCreated", "Ready",
     "A container cannot be created, for example because a ConfigMap, Secret or volume is missing."},
    {Reason::kInvalid, "Invalid", "Admitted",
     "The API server accepted the job, but its spec, or a label for Kueue, is invalid; running workers are "
     "not touched. Correct the field or label that the message names."},
    {Reason::kNoHostPorts, "NoHostPorts", "Admitted",
     "Other jobs use all ports for `hostNetwork`. End some of them, or start the operator with a wider "
     "`--host-ports`; the operator retries automatically."},
    {Reason::kRank0Succeeded, "Rank0Succeeded", "Ready, Succeeded",
     "Rank 0 ended with exit code 0, and `lifecycle.success` is Rank0."},
    {Reason::kLauncherSucceeded, "LauncherSucceeded", "Ready, Succeeded",
     "The command of framework mpi or horovod ended with exit code 0, and so did each rank that it had "
     "started "
     "in the workers."},
    {Reason::kChiefSucceeded, "ChiefSucceeded", "Ready, Succeeded",
     "The chief ended with exit code 0. The other programs were stopped, and their exit codes do not count."},
    {Reason::kNoPriorityClass, "NoPriorityClass", "Admitted",
     "The cluster has no PriorityClass of the name that `scheduling.priorityClassName` or a template gives, "
     "or "
     "no WorkloadPriorityClass of the name that the label `kueue.x-k8s.io/priority-class` gives. Create it, "
     "and the job continues by itself; or correct the name."},
    {Reason::kWaitingForQuota, "WaitingForQuota", "Admitted, Scheduled, Ready, Suspended",
     "Kueue has not admitted the job; the message is Kueue's. It starts when its queue has quota for it."},
    {Reason::kEvicted, "Evicted", "Admitted, Scheduled, Ready, Suspended",
     "Kueue takes the quota back, for the reason in the message: the workers exit, after a checkpoint if the "
     "job writes any, and the job is queued again."},
    {Reason::kDeactivated, "Deactivated", "Admitted, Scheduled, Ready, Suspended",
     "The job's Workload has `spec.active: false`. Set it to true to queue the job again."},
    {Reason::kNoKueue, "NoKueue", "Admitted, Scheduled, Ready, Suspended",
     "The job has the label `kueue.x-k8s.io/queue-name`, and the cluster does not have Kueue. Install it, or "
     "remove the label."},
    {Reason::kNoQueue, "NoQueue", "Admitted, Scheduled, Ready, Suspended",
     "The namespace has no LocalQueue of the name in the label `kueue.x-k8s.io/queue-name`, or Volcano has "
     "no "
     "queue of the name in `scheduling.queue`. Create it, and the job continues by itself; or correct the "
     "name."},
    {Reason::kNoFlavor, "NoFlavor", "Admitted, Scheduled, Ready, Suspended",
     "Kueue admitted the job to a ResourceFlavor that does not exist. Create it."},
    {Reason::kPreempting, "Preempting", "Scheduled",
     "Jobs of lower priority make room for this one, which has `scheduling.preempt`; the message says which. "
     "It starts when their workers have ended."},
    {Reason::kPreemptedToFewer, "PreemptedToFewer", "Preempted",
     "A job of higher priority needs room: this one runs with fewer workers, at least `workers.min`, until "
     "the other job has started. Then it grows again as there is room."},
    {Reason::kPreemptedWhole, "PreemptedWhole", "Preempted",
     "A job of higher priority needs room: the workers of this one exit, after a checkpoint if the job "
     "writes "
     "any. The job waits in its old place of the queue and resumes by itself: from its newest checkpoint, or "
     "from the beginning if it has none."},
    {Reason::kQueued, "Queued", "Admitted, Scheduled, Ready, Suspended",
     "The job is in a queue of Kueue, which has not considered it yet."},
    {Reason::kNoTopologyLabel, "NoTopologyLabel", "Admitted",
     "No node has the label that `scheduling.topology.required` names; the message lists the labels that "
     "nodes have. Label the nodes, and the job continues by itself; or correct the name."},
    {Reason::kNoScheduler, "NoScheduler", "Scheduled",
     "No scheduler has looked at the workers: the one that the message names does not run, or has no queue "
     "`scheduling.queue`. Start it, or create the queue, and the job continues by itself; or choose another "
     "one with `scheduling.gang`."},
    {Reason::kOtherScheduler, "OtherScheduler", "Admitted",
     "A template names a scheduler that does not know the gangs of `scheduling.gang` and would place each "
     "worker alone. Remove `schedulerName` from the template, or use `gate`."},
    {Reason::kPeersUnreachable, "PeersUnreachable", "Ready, FabricReady",
     "Some workers cannot connect to others, which the message names, so no program starts. Allow TCP on all "
     "ports between the pods of the job: a NetworkPolicy may forbid it, or the network of a node is broken. "
     "The job continues by itself."},
};

}  // namespace

int32_t AllowedWorkers(const Ledger& ledger) {
  const bool fewer = ledger.preemption && ledger.preemption->workers > 0;
  return fewer ? ledger.preemption->workers : std::numeric_limits<int32_t>::max();
}

const char* ReasonName(Reason reason) {
  const Row& row = kRows[static_cast<size_t>(reason)];
  CHECK(row.reason == reason, "the table of reasons is out of order at {}", row.name);
  return row.name;
}

const std::vector<ReasonText>& AllReasons() {
  static const std::vector<ReasonText> kAll = [] {
    std::vector<ReasonText> all;
    for (const Row& row : kRows)
      if (row.reason != Reason::kUnknown) all.push_back({row.reason, row.conditions, row.text});
    return all;
  }();
  return kAll;
}

}  // namespace ringmaster::core
