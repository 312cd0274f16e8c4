// SPDX-License-Identifier: Apache-2.0

// Field tables of the status, which the operator writes, and of the whole object. Status tables are open:
// unknown fields, which a newer version wrote, are skipped.
#pragma once

#include "api/fields.h"
#include "api/fields_ledger.h"
#include "api/fields_spec.h"

namespace ringmaster::api {

inline constexpr Rules kCount32 = {.min = 0, .max = 2'147'483'647};
inline constexpr Rules kCount64 = {.min = 0, .max = kMaxSafeInteger};
inline constexpr Rules kShort = {.max_length = 317, .form = Form::kAny};
inline constexpr Rules kMessage = {.max_length = 32'768, .form = Form::kAny};
inline constexpr Rules kTime = {.max_length = 40, .form = Form::kTime};

template <>
struct Table<Condition> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("type", &Condition::type, {.required = true, .max_length = 316, .form = Form::kAny},
        "Type of the condition."),
      F("status", &Condition::status, {.required = true, .max_length = 16, .values = "True|False|Unknown"},
        "Status of the condition."),
      F("reason", &Condition::reason, {.max_length = 1024, .form = Form::kAny},
        "Reason in one word, for programs."),
      F("message", &Condition::message, kMessage, "Human-readable explanation."),
      F("lastTransitionTime", &Condition::lastTransitionTime, kTime,
        "Time of the last change of the status."),
      F("observedGeneration", &Condition::observedGeneration, kCount64,
        "The metadata.generation that the condition describes."));
};

template <>
struct Table<RestartCounts> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("total", &RestartCounts::total, kCount32, "Number of all restarts."),
      F("charged", &RestartCounts::charged, kCount32, "Restarts that count against `restart.maxRestarts`."),
      F("withoutProgress", &RestartCounts::withoutProgress, kCount32,
        "Consecutive restarts without a new step."));
};

template <>
struct Table<LastFailure> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("attempt", &LastFailure::attempt, kCount64, "Attempt in which the failure happened."),
      F("pod", &LastFailure::pod, kShort, "Pod that failed first."),
      F("node", &LastFailure::node, kShort, "Node of the pod."),
      F("exitCode", &LastFailure::exitCode, {.min = -2'147'483'648LL, .max = 2'147'483'647},
        "Exit code of the process; 128 + n for signal n."),
      F("reason", &LastFailure::reason, {.max_length = 1024, .form = Form::kAny},
        "Reason in one word, for programs."),
      F("message", &LastFailure::message, kMessage, "Human-readable explanation."),
      F("time", &LastFailure::time, kTime, "Time of the failure."),
      F("rule", &LastFailure::rule, {.max_length = 1024, .form = Form::kAny}, "Restart rule that applied."));
};

template <>
struct Table<ExcludedNode> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("name", &ExcludedNode::name, {.required = true, .max_length = 253, .form = Form::kAny},
        "Name of the node."),
      F("effect", &ExcludedNode::effect, {.max_length = 32, .values = "NoSchedule|PreferNoSchedule"},
        "NoSchedule: the workers do not use the node. PreferNoSchedule, of a node that was lost: only "
        "if no other node has room."),
      F("reason", &ExcludedNode::reason, {.max_length = 1024, .form = Form::kAny},
        "Why the node is excluded."),
      F("until", &ExcludedNode::until, kTime, "End of the exclusion."));
};

template <>
struct Table<ProgressStatus> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("step", &ProgressStatus::step, kCount64, "Number of committed steps."),
      F("totalSteps", &ProgressStatus::totalSteps, kCount64, "Total number of steps."),
      F("etaSeconds", &ProgressStatus::etaSeconds, kCount64, "Time left at the current speed, in seconds."),
      F("percent", &ProgressStatus::percent, {.max_length = 8, .form = Form::kAny},
        "`step` as a percentage of `totalSteps`, for display."),
      F("eta", &ProgressStatus::eta, {.max_length = 32, .form = Form::kAny},
        "`etaSeconds` as text, for display."),
      F("samplesPerSecond", &ProgressStatus::samplesPerSecond, {.max_length = 32, .form = Form::kAny},
        "Current speed."),
      F("loss", &ProgressStatus::loss, {.max_length = 32, .form = Form::kAny},
        "Loss of the last reported step."));
};

template <>
struct Table<CheckpointStatus> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields =
      std::tuple(F("step", &CheckpointStatus::step, kCount64, "Step of the newest complete checkpoint."),
                 F("path", &CheckpointStatus::path, {.max_length = 4352, .form = Form::kAny},
                   "Path of the checkpoint."));
};

template <>
struct Table<Goodput> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields =
      std::tuple(F("ratio", &Goodput::ratio, {.max_length = 32, .form = Form::kAny},
                   "Productive time divided by elapsed time, from 0 to 1."),
                 F("productiveSeconds", &Goodput::productiveSeconds, kCount64, "Time in committed steps."),
                 F("lostSeconds", &Goodput::lostSeconds,
                   {.min = 0, .max = kMaxSafeInteger, .max_items = 64, .key_form = Form::kQualifiedName},
                   "Other time, by cause."));
};

template <>
struct Table<TopologyStatus> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields =
      std::tuple(F("key", &TopologyStatus::key, kShort, "Node label whose values are the domains."),
                 F("domains", &TopologyStatus::domains, kCount32, "Number of domains with pods of the job."),
                 F("pods", &TopologyStatus::pods, {.max_length = 512, .form = Form::kAny},
                   "Number of pods in each domain, for display."));
};

template <>
struct Table<Status> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("observedGeneration", &Status::observedGeneration, {.min = -1, .max = kMaxSafeInteger},
        "The metadata.generation that the status describes; -1 until the operator has seen the job."),
      F("phase", &Status::phase,
        {.max_length = 16,
         .values = "|Pending|Starting|Running|Resizing|Restarting|Suspending|Suspended|Succeeded|Failed"},
        "Summary in one word, for display; programs read the conditions."),
      F("conditions", &Status::conditions, {.max_items = 32, .key = "type"}, "Conditions, one of each type."),
      F("attempt", &Status::attempt, kCount64,
        "Number of the current set of pods; increases with every new set."),
      F("generation", &Status::generation, {.min = 0}, "Number of the current membership of the gang."),
      F("replicas", &Status::replicas, kCount32, "Number of existing workers."),
      F("readyReplicas", &Status::readyReplicas, kCount32, "Number of ready workers."),
      F("ready", &Status::ready, {.max_length = 32, .form = Form::kAny},
        "`readyReplicas` of `replicas`, for display."),
      F("fabric", &Status::fabric, {.max_length = 64, .form = Form::kAny},
        "Transport of the gradients, as measured by the workers: rc, tcp, shm."),
      F("devices", &Status::devices, {.max_length = 256, .form = Form::kAny},
        "GPUs of the workers, their driver, and the workers with a device fault."),
      F("topology", &Status::topology, {},
        "How the pods are spread over the domains of `scheduling.topology`, or of the level that the "
        "workers' template asks Kueue for."),
      F("selector", &Status::selector, {.max_length = 1024, .form = Form::kAny},
        "Label selector of the workers."),
      F("restarts", &Status::restarts, {}, "Number of restarts."),
      F("lastFailure", &Status::lastFailure, {}, "Most recent failure."),
      F("excludedNodes", &Status::excludedNodes, {.max_items = 256, .key = "name"},
        "Nodes that the workers must not use."),
      F("progress", &Status::progress, {}, "Progress of training."),
      F("checkpoint", &Status::checkpoint, {}, "Newest complete checkpoint."),
      F("goodput", &Status::goodput, {}, "Productive and lost time."),
      F("weightsHash", &Status::weightsHash, {.max_length = 32, .form = Form::kAny},
        "Hash of the final weights."),
      F("startTime", &Status::startTime, kTime, "Time when the first gang was complete."),
      F("completionTime", &Status::completionTime, kTime, "Time when the job ended."),
      F("ledger", &Status::ledger, {},
        "Write-ahead log of the operator. Internal: other programs must not use it."));
};

template <>
struct Table<TrainingJob> {
  static constexpr auto kFields =
      std::tuple(F("apiVersion", &TrainingJob::apiVersion,
                   {.required = true, .max_length = 64, .values = "ringmaster.dev/v1alpha1"},
                   "Always ringmaster.dev/v1alpha1."),
                 F("kind", &TrainingJob::kind, {.required = true, .max_length = 64, .values = "TrainingJob"},
                   "Always TrainingJob."),
                 F("metadata", &TrainingJob::metadata, {}, "Standard object metadata."),
                 F("spec", &TrainingJob::spec, {.required = true}, "Desired state."),
                 F("status", &TrainingJob::status, {}, "Observed state, written by the operator."));
};

}  // namespace ringmaster::api
