// SPDX-License-Identifier: Apache-2.0

// Field tables of the status, which the operator writes, and of the whole object. Status tables are open: a
// status written by a newer version is read as far as we know it.
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
        "Which condition."),
      F("status", &Condition::status, {.required = true, .max_length = 16, .values = "True|False|Unknown"},
        "Whether it holds."),
      F("reason", &Condition::reason, {.max_length = 1024, .form = Form::kAny}, "Why, in one word."),
      F("message", &Condition::message, kMessage, "Why, for people."),
      F("lastTransitionTime", &Condition::lastTransitionTime, kTime, "When it last changed."),
      F("observedGeneration", &Condition::observedGeneration, kCount64, "For which metadata.generation."));
};

template <>
struct Table<RestartCounts> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("total", &RestartCounts::total, kCount32, "All restarts."),
      F("charged", &RestartCounts::charged, kCount32, "Those that count against `restart.maxRestarts`."),
      F("withoutProgress", &RestartCounts::withoutProgress, kCount32, "In a row without a new step."));
};

template <>
struct Table<LastFailure> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("attempt", &LastFailure::attempt, kCount64, "Attempt in which it happened."),
      F("pod", &LastFailure::pod, kShort, "Pod that failed first."),
      F("node", &LastFailure::node, kShort, "Its node."),
      F("exitCode", &LastFailure::exitCode, {.min = -2'147'483'648LL, .max = 2'147'483'647},
        "Exit code of the process; 128 + n for signal n."),
      F("reason", &LastFailure::reason, {.max_length = 1024, .form = Form::kAny}, "Why, in one word."),
      F("message", &LastFailure::message, kMessage, "Why, for people."),
      F("time", &LastFailure::time, kTime, "When."),
      F("rule", &LastFailure::rule, {.max_length = 1024, .form = Form::kAny},
        "The restart rule that decided."));
};

template <>
struct Table<ExcludedNode> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("name", &ExcludedNode::name, {.required = true, .max_length = 253, .form = Form::kAny}, "The node."),
      F("reason", &ExcludedNode::reason, {.max_length = 1024, .form = Form::kAny}, "Why it is kept off."),
      F("until", &ExcludedNode::until, kTime, "Until when."));
};

template <>
struct Table<ProgressStatus> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("step", &ProgressStatus::step, kCount64, "Steps committed."),
      F("totalSteps", &ProgressStatus::totalSteps, kCount64, "Steps to take."),
      F("etaSeconds", &ProgressStatus::etaSeconds, kCount64, "Time left at the present pace."),
      F("percent", &ProgressStatus::percent, {.max_length = 8, .form = Form::kAny},
        "`step` of `totalSteps`, for people."),
      F("eta", &ProgressStatus::eta, {.max_length = 32, .form = Form::kAny}, "`etaSeconds`, for people."),
      F("samplesPerSecond", &ProgressStatus::samplesPerSecond, {.max_length = 32, .form = Form::kAny},
        "The present pace."),
      F("loss", &ProgressStatus::loss, {.max_length = 32, .form = Form::kAny},
        "Loss of the last step reported."));
};

template <>
struct Table<CheckpointStatus> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("step", &CheckpointStatus::step, kCount64, "Step of the newest complete checkpoint."),
      F("path", &CheckpointStatus::path, {.max_length = 4352, .form = Form::kAny}, "Where it is."));
};

template <>
struct Table<Goodput> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("ratio", &Goodput::ratio, {.max_length = 32, .form = Form::kAny},
        "Productive time over elapsed time, from 0 to 1."),
      F("productiveSeconds", &Goodput::productiveSeconds, kCount64, "Time in steps that were committed."),
      F("lostSeconds", &Goodput::lostSeconds,
        {.min = 0, .max = kMaxSafeInteger, .max_items = 64, .key_form = Form::kQualifiedName},
        "Other time, by cause."));
};

template <>
struct Table<Status> {
  static constexpr bool kOpen = true;
  static constexpr auto kFields = std::tuple(
      F("observedGeneration", &Status::observedGeneration, kCount64,
        "The metadata.generation this status is about."),
      F("phase", &Status::phase,
        {.max_length = 16,
         .values = "|Pending|Starting|Running|Resizing|Restarting|Suspending|Suspended|Succeeded|Failed"},
        "One word for people; programs read the conditions."),
      F("conditions", &Status::conditions, {.max_items = 32, .key = "type"}, "One of each type."),
      F("attempt", &Status::attempt, kCount64,
        "Number of the present set of pods; rises with every new set."),
      F("generation", &Status::generation, {.min = 0}, "Number of the present membership of the gang."),
      F("replicas", &Status::replicas, kCount32, "Workers that exist."),
      F("readyReplicas", &Status::readyReplicas, kCount32, "Workers that are ready."),
      F("ready", &Status::ready, {.max_length = 32, .form = Form::kAny},
        "`readyReplicas` of `replicas`, for people."),
      F("fabric", &Status::fabric, {.max_length = 64, .form = Form::kAny},
        "What carries the gradients, as the workers measured it: rc, tcp, shm."),
      F("devices", &Status::devices, {.max_length = 256, .form = Form::kAny},
        "The GPUs on which workers compute, their driver, and which workers have trouble with theirs."),
      F("selector", &Status::selector, {.max_length = 1024, .form = Form::kAny},
        "Label selector of the workers."),
      F("restarts", &Status::restarts, {}, "Restarts so far."),
      F("lastFailure", &Status::lastFailure, {}, "The newest failure."),
      F("excludedNodes", &Status::excludedNodes, {.max_items = 256, .key = "name"}, "Nodes kept off."),
      F("progress", &Status::progress, {}, "How far training is."),
      F("checkpoint", &Status::checkpoint, {}, "The newest checkpoint."),
      F("goodput", &Status::goodput, {}, "Where the time went."),
      F("weightsHash", &Status::weightsHash, {.max_length = 32, .form = Form::kAny},
        "Hash of the final weights."),
      F("startTime", &Status::startTime, kTime, "When the first gang was complete."),
      F("completionTime", &Status::completionTime, kTime, "When the job ended."),
      F("ledger", &Status::ledger, {}, "What the operator remembers. For the operator alone."));
};

template <>
struct Table<TrainingJob> {
  static constexpr auto kFields =
      std::tuple(F("apiVersion", &TrainingJob::apiVersion,
                   {.required = true, .max_length = 64, .values = "ringmaster.dev/v1alpha1"},
                   "Always ringmaster.dev/v1alpha1."),
                 F("kind", &TrainingJob::kind, {.required = true, .max_length = 64, .values = "TrainingJob"},
                   "Always TrainingJob."),
                 F("metadata", &TrainingJob::metadata, {}, "Name, labels."),
                 F("spec", &TrainingJob::spec, {.required = true}, "What you want."),
                 F("status", &TrainingJob::status, {}, "What is; written by the operator."));
};

}  // namespace ringmaster::api
