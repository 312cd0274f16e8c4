// SPDX-License-Identifier: Apache-2.0

// TrainingJob (ringmaster.dev/v1alpha1) as plain values, one struct per object of the manifest. The field
// tables of fields.h provide decoding, encoding, defaults, validation and the schema. Real numbers are
// decimal strings in the manifest, because floats in a CRD lose precision, and stay strings here:
// ParseDecimal reads them.
//
// Value types with ==; not thread-safe. The defaults here are the defaults of the API.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/ledger.h"
#include "base/json.h"

namespace ringmaster::api {

struct Metadata {
  std::string name;
  std::string namespace_ = "default";
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  bool operator==(const Metadata&) const = default;
};

struct Workers {
  int32_t replicas = 1;        // the scale subresource
  std::optional<int32_t> min;  // both default to replicas: not elastic
  std::optional<int32_t> max;
  std::string slots = "1";  // ranks per pod: a number, or "gpu" for the GPUs requested
  Json template_;           // PodTemplateSpec, merged into the generated pods; null: not given
  bool operator==(const Workers&) const = default;
  int32_t EffectiveMin() const { return min.value_or(replicas); }
  int32_t EffectiveMax() const { return max.value_or(replicas); }
};

// Further programs of a job, next to its workers; frameworks other than native.
struct Role {
  std::string name;                    // chief | ps | evaluator | master
  int32_t replicas = 1;                // pods, each with one program
  Json template_;                      // PodTemplateSpec; null: that of the workers
  std::optional<std::string> restart;  // Gang | Pod | Never; default: launch.h
  std::optional<bool> completes;       // default: launch.h
  bool operator==(const Role&) const = default;
};

// How the command of a worker's template starts; frameworks other than native.
struct Launch {
  std::string kind = "ranks";        // ranks | library | none
  int32_t silenceSeconds = 1800;     // without output and CPU time; 0: off
  std::vector<std::string> preload;  // Python modules
  std::optional<std::string> mpi;    // openmpi | mpich | intel; frameworks mpi and horovod only
  bool operator==(const Launch&) const = default;
};

struct Model {
  std::string kind;                 // gpt | mlp | cnn
  int32_t layers = 4;               // gpt: blocks; mlp: hidden layers; cnn: convolution stages
  int32_t heads = 4;                // gpt
  int32_t width = 128;              // gpt: embedding; mlp: hidden units; cnn: channels of the first stage
  int32_t context = 128;            // gpt: tokens per sample
  std::string tokenizer = "bytes";  // gpt: bytes | none (token .bin files)
  int32_t vocabulary = 0;           // gpt: 0 = by tokenizer (bytes: 256)
  bool operator==(const Model&) const = default;
};

struct Data {
  std::string kind;            // text | tokens | idx | cifar10
  std::string path;            // file or folder
  std::string validationPath;  // empty: the part of `path` that its names say, or a share
  std::string validationFraction = "0.05";
  bool operator==(const Data&) const = default;
};

struct Batch {
  int32_t samplesPerStep = 64;
  int32_t microBatches = 16;  // V: the logical micro-batches; at least workers.max
  bool operator==(const Batch&) const = default;
};

struct Optimizer {
  std::string kind = "adamw";  // adamw | sgd
  std::string learningRate = "3e-4";
  std::string schedule = "constant";  // constant | linear | cosine
  int64_t warmupSteps = 0;
  std::string minLearningRate = "0";  // linear and cosine end just above it
  std::string weightDecay = "0";
  std::string momentum = "0.9";  // sgd
  std::string beta1 = "0.9";     // adamw
  std::string beta2 = "0.999";
  std::string epsilon = "1e-8";
  std::string clipNorm = "0";  // 0: no clipping
  bool operator==(const Optimizer&) const = default;
};

struct Training {
  Model model;
  Data data;
  Batch batch;
  Optimizer optimizer;
  int64_t steps = 0;  // exactly one of steps and epochs is given
  int64_t epochs = 0;
  std::string device = "auto";     // auto | cpu | cuda
  std::string precision = "fp32";  // fp32 | bf16
  std::string numerics = "exact";  // exact | exact64 | fast
  int64_t seed = 1;
  int64_t validateEverySteps = 0;  // 0: only at the end
  int64_t validateSamples = 0;     // 0: all
  bool operator==(const Training&) const = default;
};

struct Checkpoint {
  std::string path;  // empty: DIR/checkpoints with `ringmaster run`, none on a cluster
  int64_t everySteps = 100;
  int32_t keep = 3;
  std::string from;  // a checkpoint of another run, or of other settings, to begin with
  std::string volumeClaim;
  int32_t gracePeriodSeconds = 120;
  bool operator==(const Checkpoint&) const = default;
};

struct Rdma {
  std::string resource;  // extended resource, for example rdma/ib
  int32_t count = 1;
  bool required = true;
  std::string claimTemplate;  // DRA ResourceClaimTemplate instead of a resource
  bool operator==(const Rdma&) const = default;
};

struct Network {
  std::optional<Rdma> rdma;
  std::vector<std::string> networks;  // Multus attachments
  std::string transport = "auto";     // auto | shm | ucx : transport of gradients
  std::string fallback = "fail";  // fail | warn | allow : action when the job requests RDMA and runs over TCP
  bool hostNetwork = false;
  bool operator==(const Network&) const = default;
};

struct Topology {
  std::string required;
  std::string preferred;
  bool operator==(const Topology&) const = default;
};

struct Scheduling {
  std::string gang = "auto";  // auto | native | volcano | coscheduling | gate | none
  std::string queue;
  std::string priorityClassName;
  Topology topology;
  int32_t timeoutSeconds = 600;
  bool autoscaler = false;
  bool preempt = false;
  bool operator==(const Scheduling&) const = default;
};

struct Backoff {
  int32_t initialSeconds = 5;
  int32_t maxSeconds = 300;
  bool operator==(const Backoff&) const = default;
};

// The criteria of a rule. Every criterion that is set must match.
struct RuleMatch {
  std::vector<int32_t> exitCodes;
  std::optional<bool> nodeUnreachable;
  std::optional<bool> hang;
  std::string podCondition;
  std::string messageRegex;
  bool operator==(const RuleMatch&) const = default;
};

struct RestartRule {
  RuleMatch on;                    // `when` in the manifest: in YAML 1.1 a plain key `on` is a boolean
  std::string action = "Restart";  // Restart | Fail | Ignore
  bool charge = true;
  bool excludeNode = false;
  bool operator==(const RestartRule&) const = default;
};

struct Restart {
  int32_t maxRestarts = 10;  // charged ones only
  int32_t maxWithoutProgress = 3;
  int32_t stopSeconds = 30;  // from SIGTERM to SIGKILL; frameworks other than native
  Backoff backoff;
  std::vector<RestartRule>
      rules;  // the first match applies; exit code 64 fails the job unless a rule matches it
  bool operator==(const Restart&) const = default;
};

struct Health {
  int32_t startupSeconds = 1800;
  std::string stepSeconds = "auto";  // "auto", "0" (off) or seconds
  int32_t unreachableNodeSeconds = 60;
  int32_t nodeExclusionSeconds = 86400;
  bool operator==(const Health&) const = default;
};

struct Lifecycle {
  int64_t activeDeadlineSeconds = 0;               // 0: none
  std::optional<int64_t> ttlSecondsAfterFinished;  // none: it stays
  std::string cleanPods = "Running";               // None | Running | All
  std::optional<std::string> success;              // AllWorkers | Rank0 | Chief | Launcher; default: launch.h
  bool operator==(const Lifecycle&) const = default;
};

struct Spec {
  std::string framework;  // native | pytorch | tensorflow | deepspeed | jax | custom
  bool suspend = false;
  std::string managedBy = "ringmaster.dev/operator";
  Workers workers;
  std::vector<Role> roles;
  Launch launch;
  std::optional<Training> training;  // native only
  Checkpoint checkpoint;
  Network network;
  Scheduling scheduling;
  Restart restart;
  Health health;
  Lifecycle lifecycle;
  bool operator==(const Spec&) const = default;
};

// ---- status
// -------------------------------------------------------------------------------------------------------

struct Condition {
  std::string type;    // Admitted Scheduled Ready FabricReady Progressing Degraded Suspended Succeeded Failed
  std::string status;  // True | False | Unknown
  std::string reason;
  std::string message;
  std::string lastTransitionTime;  // RFC 3339
  int64_t observedGeneration = 0;
  bool operator==(const Condition&) const = default;
};

struct RestartCounts {
  int32_t total = 0;
  int32_t charged = 0;
  int32_t withoutProgress = 0;
  bool operator==(const RestartCounts&) const = default;
};

struct LastFailure {
  int64_t attempt = 0;
  std::string pod;
  std::string node;
  int32_t exitCode = 0;
  std::string reason;
  std::string message;
  std::string time;
  std::string rule;
  bool operator==(const LastFailure&) const = default;
};

struct ExcludedNode {
  std::string name;
  std::string effect;  // NoSchedule or PreferNoSchedule, as of a taint; empty: NoSchedule
  std::string reason;
  std::string until;
  bool operator==(const ExcludedNode&) const = default;
};

struct ProgressStatus {
  int64_t step = 0;
  int64_t totalSteps = 0;
  int64_t etaSeconds = 0;
  std::string percent;  // "41%"; api/display.h
  std::string eta;      // "1h05m"; api/display.h
  std::string samplesPerSecond;
  std::string loss;
  bool operator==(const ProgressStatus&) const = default;
};

struct CheckpointStatus {
  int64_t step = 0;
  std::string path;
  bool operator==(const CheckpointStatus&) const = default;
};

struct Goodput {
  std::string ratio;  // productive / elapsed, 0 to 1
  int64_t productiveSeconds = 0;
  std::map<std::string, int64_t> lostSeconds;  // by cause
  bool operator==(const Goodput&) const = default;
};

struct TopologyStatus {
  std::string key;
  int32_t domains = 0;
  std::string pods;
  bool operator==(const TopologyStatus&) const = default;
};

struct Status {
  int64_t observedGeneration = 0;
  std::string phase;  // Pending Starting Running Resizing Restarting Suspending Suspended Succeeded Failed
  std::vector<Condition> conditions;
  int64_t attempt = 0;     // fencing token of the pod set
  int64_t generation = 0;  // number of the gang's membership
  int32_t replicas = 0;
  int32_t readyReplicas = 0;
  std::string ready;    // "7/8"; api/display.h
  std::string fabric;   // transport of gradients, as measured by the workers
  std::string devices;  // GPUs of the workers; empty without GPUs
  std::optional<TopologyStatus> topology;
  std::string selector;
  RestartCounts restarts;
  std::optional<LastFailure> lastFailure;
  std::vector<ExcludedNode> excludedNodes;
  ProgressStatus progress;
  std::optional<CheckpointStatus> checkpoint;
  std::optional<Goodput> goodput;
  std::string weightsHash;
  std::string startTime;
  std::string completionTime;
  std::optional<Ledger> ledger;  // write-ahead log of the operator
  bool operator==(const Status&) const = default;
};

struct TrainingJob {
  std::string apiVersion = "ringmaster.dev/v1alpha1";
  std::string kind = "TrainingJob";
  Metadata metadata;
  Spec spec;
  Status status;
  bool operator==(const TrainingJob&) const = default;
};

}  // namespace ringmaster::api
