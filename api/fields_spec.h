// SPDX-License-Identifier: Apache-2.0

// Field tables of the spec outside spec.training, and of the metadata.
#pragma once

#include <array>

#include "api/fields.h"
#include "api/fields_training.h"
#include "api/pod_template.h"

namespace ringmaster::api {

// 63 for a host name, less two dashes, a rank of 4 digits and an attempt of 9.
inline constexpr const char* kWhyNamesAreShort =
    "pods are named NAME-ATTEMPT-RANK, and a host name has at most 63 characters";

inline constexpr int32_t kYearSeconds = 365 * 24 * 3600;

template <>
struct Table<Metadata> {
  static constexpr auto kFields = std::tuple(
      F("name", &Metadata::name,
        {.required = true, .max_length = 48, .because = kWhyNamesAreShort, .form = Form::kDnsLabel},
        "Name of the job. Pods are named NAME-ATTEMPT-RANK."),
      F("namespace", &Metadata::namespace_, {.max_length = 63, .form = Form::kDnsLabel}, "Its namespace."),
      F("labels", &Metadata::labels,
        {.max_length = 63, .max_items = 100'000, .form = Form::kLabelValue, .key_form = Form::kQualifiedName},
        "As everywhere in Kubernetes."),
      F("annotations", &Metadata::annotations,
        {.max_length = 262'144, .max_items = 100'000, .form = Form::kAny, .key_form = Form::kQualifiedName},
        "As everywhere in Kubernetes."));
  static constexpr std::array<std::string_view, 11> kIgnored = {"creationTimestamp",
                                                                "deletionGracePeriodSeconds",
                                                                "deletionTimestamp",
                                                                "finalizers",
                                                                "generateName",
                                                                "generation",
                                                                "managedFields",
                                                                "ownerReferences",
                                                                "resourceVersion",
                                                                "selfLink",
                                                                "uid"};
};

template <>
struct Table<Workers> {
  static constexpr auto kFields = std::tuple(
      F("replicas", &Workers::replicas, {.required = true, .min = 1, .max = 4096, .change = Change::kAnytime},
        "How many workers to run. The scale subresource sets it."),
      F("min", &Workers::min, {.min = 1, .max = 4096, .change = Change::kAnytime},
        "Training goes on with this many workers and pauses below. Default: `replicas` (not elastic)."),
      F("max", &Workers::max, {.min = 1, .max = 4096, .change = Change::kAnytime},
        "How far the job may be scaled. Default: `replicas`."),
      F("slots", &Workers::slots, {.min = 1, .max = 999, .max_length = 8, .form = Form::kSlots},
        "Ranks per worker, each a trainer of its own with one GPU where there are any: a number, or `gpu` "
        "for as many as GPUs are in the limits of the container that trains."),
      F("template", &Workers::template_, {.known_fields = PodTemplateFields},
        "A PodTemplateSpec that is merged into the pods we generate. Needed for every framework but "
        "native."));
};

template <>
struct Table<Checkpoint> {
  static constexpr auto kFields = std::tuple(
      F("path", &Checkpoint::path, {.max_length = 4096},
        "Folder for checkpoints. Empty: DIR/checkpoints with `ringmaster run --out DIR`, none on a cluster."),
      F("everySteps", &Checkpoint::everySteps, {.min = 1, .max = kMaxSteps},
        "Steps between two checkpoints."),
      F("keep", &Checkpoint::keep, {.min = 1, .max = 1000}, "How many of the newest are kept."),
      F("volumeClaim", &Checkpoint::volumeClaim, {.max_length = 253, .form = Form::kDnsSubdomain},
        "PersistentVolumeClaim mounted at `path`."),
      F("gracePeriodSeconds", &Checkpoint::gracePeriodSeconds, {.min = 0, .max = 86'400},
        "How long a stopping job may take to write its last checkpoint."));
};

template <>
struct Table<Rdma> {
  static constexpr auto kFields = std::tuple(
      F("resource", &Rdma::resource, {.max_length = 253, .form = Form::kResource},
        "Extended resource to request, for example rdma/ib. Exactly one of `resource` and `claimTemplate` is "
        "given."),
      F("count", &Rdma::count, {.min = 1, .max = 64}, "How many of it per worker."),
      F("required", &Rdma::required, {}, "Whether workers without a usable RDMA device are refused."),
      F("claimTemplate", &Rdma::claimTemplate, {.max_length = 253, .form = Form::kDnsSubdomain},
        "ResourceClaimTemplate (dynamic resource allocation) to claim from instead of a resource."));
};

template <>
struct Table<Network> {
  static constexpr auto kFields = std::tuple(
      F("rdma", &Network::rdma, {}, "RDMA devices for the workers. Left out: none are asked for."),
      F("networks", &Network::networks,
        {.max_length = 253, .max_items = 32, .unique = true, .form = Form::kNetwork},
        "Multus network attachments."),
      F("transport", &Network::transport, {.max_length = 16, .values = "auto|shm|ucx"},
        "What carries gradients. auto: NCCL, where each worker has a GPU of its own, else memory of one "
        "machine "
        "or UCX. ucx: UCX, from GPU to GPU where it can."),
      F("fallback", &Network::fallback, {.max_length = 16, .values = "fail|warn|allow"},
        "What to do when RDMA was asked for and is not what runs."),
      F("hostNetwork", &Network::hostNetwork, {}, "Whether workers use the network of their node."));
};

template <>
struct Table<Topology> {
  static constexpr auto kFields =
      std::tuple(F("required", &Topology::required, {.max_length = 317, .form = Form::kQualifiedName},
                   "Node label whose value all workers must share."),
                 F("preferred", &Topology::preferred, {.max_length = 317, .form = Form::kQualifiedName},
                   "Node label whose value they should share."));
};

template <>
struct Table<Scheduling> {
  static constexpr auto kFields = std::tuple(
      F("gang", &Scheduling::gang, {.max_length = 16, .values = "auto|native|volcano|coscheduling|gate|none"},
        "Who makes sure that all workers start or none does. auto: what the cluster has."),
      F("queue", &Scheduling::queue, {.max_length = 253, .form = Form::kDnsSubdomain},
        "Queue of the gang scheduler."),
      F("priorityClassName", &Scheduling::priorityClassName, {.max_length = 253, .form = Form::kDnsSubdomain},
        "Priority of the workers."),
      F("topology", &Scheduling::topology, {}, "How close together they are put."),
      F("timeoutSeconds", &Scheduling::timeoutSeconds,
        {.min = 1, .max = kYearSeconds, .change = Change::kAnytime},
        "How long the gang may wait for room before it is withdrawn for a while."),
      F("autoscaler", &Scheduling::autoscaler, {},
        "Whether waiting workers are shown to a cluster autoscaler."));
};

template <>
struct Table<Backoff> {
  static constexpr auto kFields = std::tuple(
      F("initialSeconds", &Backoff::initialSeconds, {.min = 0, .max = 86'400},
        "Wait before the first restart."),
      F("maxSeconds", &Backoff::maxSeconds, {.min = 0, .max = 86'400}, "The wait doubles up to this."));
};

template <>
struct Table<RuleMatch> {
  static constexpr auto kFields = std::tuple(
      F("exitCodes", &RuleMatch::exitCodes, {.min = 1, .max = 255, .max_items = 255, .unique = true},
        "The process ended with one of these."),
      F("nodeUnreachable", &RuleMatch::nodeUnreachable, {}, "The node stopped answering."),
      F("hang", &RuleMatch::hang, {}, "The worker made no progress for `health.stepSeconds`."),
      F("podCondition", &RuleMatch::podCondition, {.max_length = 317, .form = Form::kQualifiedName},
        "The pod has this condition, for example DisruptionTarget."),
      F("messageRegex", &RuleMatch::messageRegex, {.max_length = 512, .form = Form::kPattern},
        "A regular expression (RE2) found in the failure's message."));
};

// `when` and not `on`: YAML 1.1, which kubectl reads, takes a plain key `on` for a boolean.
template <>
struct Table<RestartRule> {
  static constexpr auto kFields =
      std::tuple(F("when", &RestartRule::on, {.required = true},
                   "What the rule matches; every member given must match."),
                 F("action", &RestartRule::action, {.max_length = 16, .values = "Restart|Fail|Ignore"},
                   "What to do then."),
                 F("charge", &RestartRule::charge, {}, "Whether the restart counts against `maxRestarts`."),
                 F("excludeNode", &RestartRule::excludeNode, {},
                   "Whether to keep off the node for `health.nodeExclusionSeconds`."));
};

template <>
struct Table<Restart> {
  static constexpr auto kFields =
      std::tuple(F("maxRestarts", &Restart::maxRestarts, {.min = 0, .max = 1'000'000},
                   "Charged restarts before the job fails."),
                 F("maxWithoutProgress", &Restart::maxWithoutProgress, {.min = 0, .max = 1'000'000},
                   "Restarts in a row without a new step before the job fails."),
                 F("backoff", &Restart::backoff, {}, "How long to wait between restarts."),
                 F("rules", &Restart::rules, {.max_items = 64},
                   "Read in order, the first that matches wins. Exit code 64 fails the job unless a rule "
                   "says otherwise."));
};

template <>
struct Table<Health> {
  static constexpr auto kFields =
      std::tuple(F("startupSeconds", &Health::startupSeconds, {.min = 1, .max = kYearSeconds},
                   "How long a worker may take to its first step."),
                 F("stepSeconds", &Health::stepSeconds,
                   {.min = 0, .max = 999'999, .max_length = 8, .form = Form::kAutoSeconds},
                   "How long one step may take before the worker counts as hung: `auto` (from the steps "
                   "seen), 0 (off) or "
                   "seconds."),
                 F("unreachableNodeSeconds", &Health::unreachableNodeSeconds, {.min = 0, .max = kYearSeconds},
                   "How long to wait for a node that stopped answering."),
                 F("nodeExclusionSeconds", &Health::nodeExclusionSeconds, {.min = 0, .max = kYearSeconds},
                   "How long an excluded node stays excluded."));
};

template <>
struct Table<Lifecycle> {
  static constexpr auto kFields =
      std::tuple(F("activeDeadlineSeconds", &Lifecycle::activeDeadlineSeconds,
                   {.min = 0, .max = 10LL * kYearSeconds}, "The job fails when it runs longer. 0: no limit."),
                 F("ttlSecondsAfterFinished", &Lifecycle::ttlSecondsAfterFinished,
                   {.min = 0, .max = 10LL * kYearSeconds}, "The finished job is deleted after this."),
                 F("cleanPods", &Lifecycle::cleanPods, {.max_length = 16, .values = "None|Running|All"},
                   "Which pods of a finished job are deleted."));
};

template <>
struct Table<Spec> {
  static constexpr auto kFields = std::tuple(
      F("framework", &Spec::framework,
        {.required = true,
         .max_length = 16,
         .values = "native|pytorch|tensorflow|deepspeed|jax",
         .change = Change::kNever},
        "Whose training loop runs. native: the built-in engine, described by `training`. The others need "
        "`workers.template`."),
      F("suspend", &Spec::suspend, {.change = Change::kAnytime},
        "Checkpoint and stop the workers; false again resumes."),
      F("managedBy", &Spec::managedBy,
        {.max_length = 63, .form = Form::kQualifiedName, .change = Change::kNever},
        "The controller in charge of the job."),
      F("workers", &Spec::workers, {.required = true}, "The gang."),
      F("training", &Spec::training, {}, "What to train; only for framework native, and required there."),
      F("checkpoint", &Spec::checkpoint, {}, "Where and how often state is saved."),
      F("network", &Spec::network, {}, "What connects the workers."),
      F("scheduling", &Spec::scheduling, {}, "Where and when the workers start."),
      F("restart", &Spec::restart, {.change = Change::kAnytime}, "What happens after failures."),
      F("health", &Spec::health, {.change = Change::kAnytime}, "When a worker or a node counts as failed."),
      F("lifecycle", &Spec::lifecycle, {.change = Change::kAnytime}, "Deadline and clean-up."));
};

}  // namespace ringmaster::api
