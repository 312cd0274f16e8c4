// SPDX-License-Identifier: Apache-2.0

// Every reason that a condition can have: its name, where it appears, what it means and what to do.
#include "operator/core/status.h"
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
    {Reason::kAccepted, "Accepted", "Admitted", "The job is accepted; its workers may be made."},
    {Reason::kSuspendRequested, "SuspendRequested", "Admitted, Suspended",
     "`spec.suspend` is true and no worker is left."},
    {Reason::kStopping, "Stopping", "Suspended, Scheduled, Ready, Progressing",
     "A suspend was asked for: the workers write a checkpoint and end."},
    {Reason::kNotSuspended, "NotSuspended", "Suspended", "The job is not suspended."},
    {Reason::kAllPodsPlaced, "AllPodsPlaced", "Scheduled", "Every worker has a node."},
    {Reason::kWaitingForPods, "WaitingForPods", "Scheduled, Ready",
     "Workers are being made, or are starting."},
    {Reason::kAllPodsRunning, "AllPodsRunning", "Ready", "Every worker runs."},
    {Reason::kBackOff, "BackOff", "Scheduled, Ready",
     "The next workers are made after a pause; the message says until when and why."},
    {Reason::kGangFormed, "GangFormed", "FabricReady", "The workers found each other and train."},
    {Reason::kTcpFallback, "TCPFallback", "FabricReady",
     "RDMA was asked for with `network.fallback: warn`, and gradients travel over TCP."},
    {Reason::kGangForming, "GangForming", "FabricReady", "The workers are finding each other."},
    {Reason::kGangPaused, "GangPaused", "FabricReady, Progressing",
     "Fewer than `workers.min` take part: the others hold the state in memory and wait."},
    {Reason::kNotReported, "NotReported", "FabricReady, Progressing", "This framework does not report it."},
    {Reason::kStepAdvanced, "StepAdvanced", "Progressing", "Steps are being committed."},
    {Reason::kStarting, "Starting", "Progressing", "No step was committed yet."},
    {Reason::kEnded, "Ended", "Scheduled, Ready, FabricReady, Progressing",
     "The job is over or suspended: no gang is up."},
    {Reason::kCheckpointFailing, "CheckpointFailing", "Degraded",
     "The job trains, and the newest checkpoint could not be written: a failure of all workers now would "
     "cost more than usual. The message says why; the next checkpoint is tried as always."},
    {Reason::kBelowTarget, "BelowTarget", "Degraded", "The job goes on with fewer workers than asked for."},
    {Reason::kAsWished, "AsWished", "Degraded", "Nothing is missing."},
    {Reason::kAllStepsDone, "AllStepsDone", "Succeeded",
     "Every step is committed and the final checkpoint is written."},
    {Reason::kAllPodsSucceeded, "AllPodsSucceeded", "Succeeded", "Every worker ended with exit code 0."},
    {Reason::kNotFinished, "NotFinished", "Succeeded", "The job is not done."},
    {Reason::kNotFailed, "NotFailed", "Failed", "The job has not failed."},
    {Reason::kBadConfiguration, "BadConfiguration", "Failed",
     "A worker ended with exit code 64: no restart helps. Correct what the message names."},
    {Reason::kRuleMatched, "RuleMatched", "Failed",
     "A rule of `restart.rules` says that this failure ends the job."},
    {Reason::kRestartBudgetSpent, "RestartBudgetSpent", "Failed",
     "More charged failures than `restart.maxRestarts`; the message has the last one."},
    {Reason::kNoProgress, "NoProgress", "Failed",
     "More failures in a row than `restart.maxWithoutProgress` with no step between them."},
    {Reason::kDeadlineExceeded, "DeadlineExceeded", "Failed", "`lifecycle.activeDeadlineSeconds` is over."},
    {Reason::kTrainingFailed, "TrainingFailed", "Failed",
     "The coordinator gave up: the message says what no restart can repair."},
    {Reason::kPreparing, "Preparing", "Scheduled",
     "Service, configuration and gang object of the attempt are being made."},
    {Reason::kWaitingForCapacity, "WaitingForCapacity", "Scheduled",
     "The workers are held back until the free nodes hold all of them; the message says what is missing."},
    {Reason::kUnschedulable, "Unschedulable", "Scheduled",
     "The scheduler finds no node; the message is its own. Free or add nodes, or correct requests, selectors "
     "and tolerations."},
    {Reason::kGangTimeout, "GangTimeout", "Scheduled",
     "Not all workers found nodes within `scheduling.timeoutSeconds`: they were withdrawn and are tried "
     "again after a pause."},
    {Reason::kQuotaExceeded, "QuotaExceeded", "Admitted",
     "A ResourceQuota of the namespace refuses the workers. Raise it, or free what is used; it is tried "
     "again by itself."},
    {Reason::kPodSecurity, "PodSecurity", "Admitted",
     "The Pod Security level of the namespace refuses the workers. Change the fields the message names, or "
     "the label of the namespace."},
    {Reason::kAdmissionRefused, "AdmissionRefused", "Admitted",
     "An admission webhook or policy refuses the workers; the message is its own."},
    {Reason::kForbidden, "Forbidden", "Admitted",
     "The operator lacks a right. Compare its ClusterRole with the one it was installed with."},
    {Reason::kInvalidPod, "InvalidPod", "Admitted",
     "The API server refuses the worker as invalid. Correct `workers.template`."},
    {Reason::kNameTaken, "NameTaken", "Admitted",
     "Something else in the namespace has the name of a worker or of what stands beside it. Remove it, or "
     "rename the job."},
    {Reason::kNamespaceEnding, "NamespaceEnding", "Admitted", "The namespace is being deleted."},
    {Reason::kNoGangProvider, "NoGangProvider", "Admitted",
     "`scheduling.gang` names a provider that the cluster does not have. Install it, or use `auto` or "
     "`gate`."},
    {Reason::kImagePullFailed, "ImagePullFailed", "Ready",
     "An image cannot be pulled. Correct the name, or give `imagePullSecrets` in `workers.template`."},
    {Reason::kContainerNotCreated, "ContainerNotCreated", "Ready",
     "A container cannot be made, for example because a ConfigMap, Secret or volume is missing."},
    {Reason::kInvalid, "Invalid", "Admitted",
     "The job got past the API server and cannot be run as it is; what runs is left alone meanwhile. Correct "
     "the field that the message names."},
    {Reason::kNoHostPorts, "NoHostPorts", "Admitted",
     "All ports for jobs on `hostNetwork` are allotted to others. End some of them, or give the operator a "
     "wider `--host-ports`; it is tried again by itself."},
};

}  // namespace

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
