// SPDX-License-Identifier: Apache-2.0

// Field tables of the spec outside spec.training, and of the metadata.
#pragma once

#include <array>

#include "api/fields.h"
#include "api/fields_training.h"
#include "api/pod_template.h"

namespace ringmaster::api {

// The limit is 48: a host name has 63 characters; subtract two dashes, a rank of 4 digits and an attempt
// of 9.
inline constexpr const char* kWhyNamesAreShort =
    "pods are named NAME-ATTEMPT-RANK, and a host name has at most 63 characters";

inline constexpr int32_t kYearSeconds = 365 * 24 * 3600;

template <>
struct Table<Metadata> {
  static constexpr auto kFields = std::tuple(
      F("name", &Metadata::name,
        {.required = true, .max_length = 48, .because = kWhyNamesAreShort, .form = Form::kDnsLabel},
        "Name of the job. Pods are named NAME-ATTEMPT-RANK."),
      F("namespace", &Metadata::namespace_, {.max_length = 63, .form = Form::kDnsLabel},
        "Namespace of the job."),
      F("labels", &Metadata::labels,
        {.max_length = 63, .max_items = 100'000, .form = Form::kLabelValue, .key_form = Form::kQualifiedName},
        "Kubernetes labels."),
      F("annotations", &Metadata::annotations,
        {.max_length = 262'144, .max_items = 100'000, .form = Form::kAny, .key_form = Form::kAnnotation},
        "Kubernetes annotations."));
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
        "Desired number of workers. The scale subresource sets it."),
      F("min", &Workers::min, {.min = 1, .max = 4096, .change = Change::kAnytime},
        "Minimum number of workers; training pauses below it. Default: `replicas` (not elastic)."),
      F("max", &Workers::max, {.min = 1, .max = 4096, .change = Change::kAnytime},
        "Maximum number of workers to which the job may be scaled. Default: `replicas`."),
      F("slots", &Workers::slots, {.min = 1, .max = 999, .max_length = 8, .form = Form::kSlots},
        "Ranks per worker. Each rank is a separate process, with one GPU if the worker has GPUs. With kind "
        "ranks of pytorch and deepspeed it sees all of them, and selects one by LOCAL_RANK; it must be 1 "
        "with torchrun, which starts as many ranks as the variable PET_NPROC_PER_NODE has. With frameworks "
        "mpi and horovod, the slots of the worker in the hosts of mpirun or horovodrun. A number, or `gpu` "
        "for the number of GPUs in the limits of the training container."),
      F("template", &Workers::template_, {.known_fields = PodTemplateFields},
        "PodTemplateSpec that is merged into the generated pods. Required for every framework except "
        "native."));
};

template <>
struct Table<Role> {
  static constexpr auto kFields = std::tuple(
      F("name", &Role::name,
        {.required = true, .max_length = 16, .values = "chief|ps|evaluator|master|launcher"},
        "tensorflow: chief, ps (parameter server) or evaluator, as in TF_CONFIG. pytorch: master, which is "
        "the first worker with another template. mpi, horovod: launcher, a pod that runs the command in "
        "place of the first worker, and no rank."),
      F("replicas", &Role::replicas, {.min = 1, .max = 1000},
        "Number of pods, each with one program. Every role except ps must have 1."),
      F("template", &Role::template_, {.known_fields = PodTemplateFields},
        "PodTemplateSpec of the role's pods. Default: `workers.template`."),
      F("restart", &Role::restart, {.max_length = 16, .values = "Gang|Pod|Never"},
        "What happens when a program of the role fails. Gang: all programs start again. Pod: this one starts "
        "again in its pod, while the others run. Never: it stays ended. Default: Pod for ps and evaluator, "
        "otherwise Gang. In a job with ps, workers start again alone, too."),
      F("completes", &Role::completes, {},
        "Whether `lifecycle.success: AllWorkers` waits for the role. Default: false for ps and evaluator, "
        "which "
        "run until the job ends, otherwise true."));
};

template <>
struct Table<Launch> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Launch::kind, {.max_length = 16, .values = "ranks|library|none"},
        "How the command of `workers.template` starts. ranks: an agent in each pod starts it once per rank, "
        "and restarts all ranks in place when one fails. library: the same, but the program trains through "
        "Ringmaster's library (libringmaster, or the Python package ringmaster): when a rank fails, the "
        "others continue with all of their state, and `workers.min` and `max` apply while it trains. "
        "Frameworks pytorch, jax and custom. none: the container runs as it is, and a failure replaces the "
        "pods."),
      F("silenceSeconds", &Launch::silenceSeconds, {.min = 0, .max = kYearSeconds},
        "With kind ranks, a rank counts as hung when it prints nothing, reports no progress and uses no CPU "
        "time for this long. 0: off. Programs that report progress are also held to `health.stepSeconds`. "
        "The roles ps and evaluator may wait without limit."),
      F("preload", &Launch::preload,
        {.max_length = 253, .max_items = 32, .unique = true, .form = Form::kModule},
        "Python modules that a spare process imports in each pod, for each rank. It becomes the rank after "
        "a failure, which saves the time of the imports and costs the memory. The command must be python "
        "with a script or a module. Kind ranks only."),
      F("mpi", &Launch::mpi, {.max_length = 16, .values = "openmpi|mpich|intel"},
        "Implementation of MPI in the image. openmpi: Open MPI 4 and 5. mpich: MPICH and others with its "
        "launcher Hydra. intel: Intel MPI. The agents set what its mpirun and mpiexec read to start "
        "`workers.slots` ranks in every worker, without SSH. Required for framework mpi. In a job of "
        "framework horovod it allows `horovodrun --mpi` and mpirun; without it the ranks use gloo. Not "
        "allowed for other frameworks."));
};

template <>
struct Table<Checkpoint> {
  static constexpr auto kFields = std::tuple(
      F("path", &Checkpoint::path, {.max_length = 4096},
        "Folder for checkpoints. Empty: DIR/checkpoints with `ringmaster run --out DIR`; on a cluster "
        "/checkpoints/NAMESPACE/NAME with a `volumeClaim`, none without."),
      F("everySteps", &Checkpoint::everySteps, {.min = 1, .max = kMaxSteps},
        "Number of steps between two checkpoints."),
      F("keep", &Checkpoint::keep, {.min = 1, .max = 1000}, "Number of newest checkpoints to keep."),
      F("from", &Checkpoint::from, {.max_length = 4096},
        "Checkpoint to begin with, or folder of checkpoints, of which the newest counts. It may be of "
        "another "
        "job or of other settings, such as another learning rate; not of another model. Checkpoints of this "
        "job "
        "go first. Without it, a job refuses checkpoints of other jobs and settings."),
      F("volumeClaim", &Checkpoint::volumeClaim, {.max_length = 253, .form = Form::kDnsSubdomain},
        "PersistentVolumeClaim mounted at `path`."),
      F("gracePeriodSeconds", &Checkpoint::gracePeriodSeconds, {.min = 0, .max = 86'400},
        "Time for a stopping job to write its last checkpoint."));
};

template <>
struct Table<Rdma> {
  static constexpr auto kFields = std::tuple(
      F("resource", &Rdma::resource, {.max_length = 253, .form = Form::kResource},
        "Extended resource to request, for example rdma/ib. Exactly one of `resource` and `claimTemplate` is "
        "given."),
      F("count", &Rdma::count, {.min = 1, .max = 64}, "Number of devices per worker."),
      F("required", &Rdma::required, {}, "Whether a worker without a usable RDMA device fails."),
      F("claimTemplate", &Rdma::claimTemplate, {.max_length = 253, .form = Form::kDnsSubdomain},
        "ResourceClaimTemplate (dynamic resource allocation) to use instead of a resource."));
};

template <>
struct Table<Network> {
  static constexpr auto kFields = std::tuple(
      F("rdma", &Network::rdma, {}, "RDMA devices for the workers. Omitted: workers request none."),
      F("networks", &Network::networks,
        {.max_length = 253, .max_items = 32, .unique = true, .form = Form::kNetwork},
        "Multus network attachments."),
      F("transport", &Network::transport, {.max_length = 16, .values = "auto|shm|ucx"},
        "Transport of gradients. auto: NCCL if each rank has its own GPU; otherwise shared memory on one "
        "machine, "
        "or UCX. shm: shared memory. ucx: UCX, from GPU to GPU where possible."),
      F("fallback", &Network::fallback, {.max_length = 16, .values = "fail|warn|allow"},
        "Action when the job requests RDMA and gradients use another transport."),
      F("hostNetwork", &Network::hostNetwork, {}, "Whether workers use the network of their nodes."));
};

template <>
struct Table<Topology> {
  static constexpr auto kFields = std::tuple(
      F("required", &Topology::required, {.max_length = 317, .form = Form::kQualifiedName},
        "Node label whose value all workers must share. Any label works; the workers get the smallest "
        "domain with room for all, chosen before the first pod is created."),
      F("preferred", &Topology::preferred, {.max_length = 317, .form = Form::kQualifiedName},
        "Node label whose value all workers should share if possible: they get as few domains as have "
        "room, and never wait for one."));
};

template <>
struct Table<Scheduling> {
  static constexpr auto kFields = std::tuple(
      F("gang", &Scheduling::gang, {.max_length = 16, .values = "auto|native|volcano|coscheduling|gate|none"},
        "Gang scheduler, which starts all workers or none. auto: selected by what the cluster supports."),
      F("queue", &Scheduling::queue, {.max_length = 253, .form = Form::kDnsSubdomain},
        "Queue of the gang scheduler."),
      F("priorityClassName", &Scheduling::priorityClassName, {.max_length = 253, .form = Form::kDnsSubdomain},
        "PriorityClass of the workers. Of the gangs that wait for the gate, those of higher priority start "
        "first."),
      F("topology", &Scheduling::topology, {}, "Placement of the workers relative to each other."),
      F("timeoutSeconds", &Scheduling::timeoutSeconds,
        {.min = 1, .max = kYearSeconds, .change = Change::kAnytime},
        "How long the gang may wait for capacity before the operator withdraws it temporarily."),
      F("autoscaler", &Scheduling::autoscaler, {},
        "Whether an autoscaler adds nodes for waiting workers: they are created before there is room."),
      F("preempt", &Scheduling::preempt, {.change = Change::kAnytime},
        "Whether jobs of lower priority make room for this one while it waits at the gate: elastic jobs "
        "shrink "
        "to workers.min; if that is not enough, whole jobs stop, with a checkpoint if they write any, and "
        "wait in the queue. Not when the PriorityClass has preemptionPolicy Never."));
};

template <>
struct Table<Backoff> {
  static constexpr auto kFields = std::tuple(F("initialSeconds", &Backoff::initialSeconds,
                                               {.min = 0, .max = 86'400}, "Delay before the first restart."),
                                             F("maxSeconds", &Backoff::maxSeconds, {.min = 0, .max = 86'400},
                                               "Maximum delay. The delay doubles with every failure."));
};

template <>
struct Table<RuleMatch> {
  static constexpr auto kFields = std::tuple(
      F("exitCodes", &RuleMatch::exitCodes, {.min = 1, .max = 255, .max_items = 255, .unique = true},
        "The process ended with one of these exit codes."),
      F("nodeUnreachable", &RuleMatch::nodeUnreachable, {}, "The node stopped answering."),
      F("hang", &RuleMatch::hang, {},
        "The worker made no progress for `health.stepSeconds` or `launch.silenceSeconds`, or was stopped."),
      F("podCondition", &RuleMatch::podCondition, {.max_length = 317, .form = Form::kQualifiedName},
        "The pod has this condition, for example DisruptionTarget."),
      F("messageRegex", &RuleMatch::messageRegex, {.max_length = 512, .form = Form::kPattern},
        "A regular expression (RE2) found in the failure's message."));
};

// The name is `when` and not `on`, because in YAML 1.1, which kubectl reads, a plain key `on` is a boolean.
template <>
struct Table<RestartRule> {
  static constexpr auto kFields =
      std::tuple(F("when", &RestartRule::on, {.required = true},
                   "Criteria of the rule. Every criterion that is set must match."),
                 F("action", &RestartRule::action, {.max_length = 16, .values = "Restart|Fail|Ignore"},
                   "Action when the rule matches."),
                 F("charge", &RestartRule::charge, {}, "Whether the restart counts against `maxRestarts`."),
                 F("excludeNode", &RestartRule::excludeNode, {},
                   "Whether to exclude the node for `health.nodeExclusionSeconds`."));
};

template <>
struct Table<Restart> {
  static constexpr auto kFields = std::tuple(
      F("maxRestarts", &Restart::maxRestarts, {.min = 0, .max = 1'000'000},
        "Charged restarts before the job fails."),
      F("maxWithoutProgress", &Restart::maxWithoutProgress, {.min = 0, .max = 1'000'000},
        "Restarts in a row without a new step before the job fails."),
      F("stopSeconds", &Restart::stopSeconds, {.min = 0, .max = 86'400},
        "Time from SIGTERM to SIGKILL for ranks that are stopped by plan, as for a suspension or another "
        "number of workers. After a failure of one rank, the others get at most 5 s of it: without that "
        "rank, they have nothing to save. Ranks of framework native and of launch kind library stay alive; "
        "with the latter, this is the time that the program has to end when the job is stopped. Pods keep "
        "the value that they were created with."),
      F("backoff", &Restart::backoff, {}, "Delay between restarts."),
      F("rules", &Restart::rules, {.max_items = 64},
        "Rules for failures. The first rule that matches applies. Exit code 64 fails the job unless a "
        "rule matches it."));
};

template <>
struct Table<Health> {
  static constexpr auto kFields = std::tuple(
      F("startupSeconds", &Health::startupSeconds, {.min = 1, .max = kYearSeconds},
        "Time for a worker to reach its first step."),
      F("stepSeconds", &Health::stepSeconds,
        {.min = 0, .max = 999'999, .max_length = 8, .form = Form::kAutoSeconds},
        "Time for one step before the worker counts as hung: `auto` (derived from earlier steps), 0 (off) "
        "or seconds. It applies to a program from its first report of progress on, and with launch kind "
        "library from its first step on."),
      F("unreachableNodeSeconds", &Health::unreachableNodeSeconds, {.min = 0, .max = kYearSeconds},
        "How long to wait for an unreachable node before replacing its workers. Workers whose agents "
        "the coordinator hears are not replaced."),
      F("nodeExclusionSeconds", &Health::nodeExclusionSeconds, {.min = 0, .max = kYearSeconds},
        "How long an excluded node stays excluded, and others are preferred to a lost one."));
};

template <>
struct Table<Lifecycle> {
  static constexpr auto kFields = std::tuple(
      F("activeDeadlineSeconds", &Lifecycle::activeDeadlineSeconds, {.min = 0, .max = 10LL * kYearSeconds},
        "The job fails when it is active for longer than this. Time while it is suspended, or waits in a "
        "queue "
        "or for nodes, does not count. 0: no limit."),
      F("ttlSecondsAfterFinished", &Lifecycle::ttlSecondsAfterFinished,
        {.min = 0, .max = 10LL * kYearSeconds},
        "The operator deletes the finished job after this time. Default: it stays until a user deletes it."),
      F("cleanPods", &Lifecycle::cleanPods, {.max_length = 16, .values = "None|Running|All"},
        "Which pods of a finished job the operator deletes."),
      F("success", &Lifecycle::success, {.max_length = 16, .values = "AllWorkers|Rank0|Chief|Launcher"},
        "Which programs must end with exit code 0 for the job to succeed. AllWorkers: every rank, and every "
        "role that completes. Rank0: the first worker. Chief: the role chief. With Rank0 and Chief the other "
        "programs are then stopped, and their exit codes do not count. Launcher: the command of frameworks "
        "mpi and horovod, and each rank that it has started in the workers. Default: Chief in a job with a "
        "chief, Launcher for frameworks mpi and horovod, otherwise AllWorkers."));
};

template <>
struct Table<Spec> {
  static constexpr auto kFields = std::tuple(
      F("framework", &Spec::framework,
        {.required = true,
         .max_length = 16,
         .values = "native|pytorch|tensorflow|deepspeed|jax|mpi|horovod|custom",
         .change = Change::kNever},
        "Framework whose training loop runs. native: the built-in engine, configured by `training`. The "
        "others require `workers.template`. mpi: the command runs in the role launcher, or else in the first "
        "worker, and starts the ranks in all workers with mpirun or mpiexec. horovod: the same with "
        "horovodrun; with the role launcher and `workers.min` or `max` it runs while workers come and go. "
        "custom: any other program; its ranks get RINGMASTER_RANK and "
        "RINGMASTER_WORLD_SIZE, and the variables of no framework."),
      F("suspend", &Spec::suspend, {.change = Change::kAnytime},
        "true: stop the workers, after a checkpoint if the job writes any. false: run, and resume from the "
        "newest checkpoint."),
      F("managedBy", &Spec::managedBy,
        {.max_length = 63, .form = Form::kQualifiedName, .change = Change::kNever},
        "Controller that manages the job."),
      F("workers", &Spec::workers, {.required = true}, "Number and pods of the workers."),
      F("roles", &Spec::roles, {.max_items = 8, .key = "name"},
        "Further programs of frameworks other than native. Their pods are named NAME-ATTEMPT-ROLE-INDEX, and "
        "are "
        "scheduled in one gang with the workers."),
      F("launch", &Spec::launch, {}, "How the workers of frameworks other than native start their ranks."),
      F("training", &Spec::training, {},
        "Model, data and optimizer. Required for framework native, and only there."),
      F("checkpoint", &Spec::checkpoint, {}, "Where and how often to save checkpoints."),
      F("network", &Spec::network, {}, "Network and transport of the workers."),
      F("scheduling", &Spec::scheduling, {}, "Gang scheduling and placement of the workers."),
      F("restart", &Spec::restart, {.change = Change::kAnytime}, "Handling of failures."),
      F("health", &Spec::health, {.change = Change::kAnytime}, "When a worker or a node counts as failed."),
      F("lifecycle", &Spec::lifecycle, {.change = Change::kAnytime}, "Success, deadline and clean-up."));
};

}  // namespace ringmaster::api
