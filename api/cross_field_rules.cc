// SPDX-License-Identifier: Apache-2.0

#include "api/cross_field_rules.h"

namespace ringmaster::api {
namespace {

constexpr const char* kMissing = "FieldValueRequired";
constexpr const char* kForbidden = "FieldValueForbidden";

#define SLOTS "string(self.workers.slots)"
#define RANKS                                                                     \
  "((has(self.workers.max) ? self.workers.max : self.workers.replicas) * (" SLOTS \
  " == 'gpu' ? 1 : int(" SLOTS ")))"

#define CONTAINERS "self.workers.template.spec.containers"
#define HAS_COMMAND(container) "has(" container ".command) && size(" container ".command) > 0"
// Not a pattern: the API server estimates the cost of a rule by the longest string. The agent checks the
// rest.
#define IS_PYTHON(container) "!(" HAS_COMMAND(container) ") || " container ".command[0].contains('python')"

// Our validator finds python -m torch.distributed.run, too.
#define IS_TORCHRUN(container) HAS_COMMAND(container) " && " container ".command[0].contains('torchrun')"

// Whether a template asks Kueue for a topology.
#define PODSET "'kueue.x-k8s.io/podset-"
#define ASKS_KUEUE(template) \
  "has(" template ") && has(" template ".metadata) && has(" template ".metadata.annotations) && " \
  "[" PODSET "required-topology', " PODSET "preferred-topology', " PODSET                         \
  "unconstrained-topology', " PODSET "slice-required-topology'].exists(a, a in " template         \
  ".metadata.annotations)"

#define ROLES_KNOWN                                                                               \
  "self.roles.all(r, r.name in (self.framework == 'tensorflow' ? ['chief', 'ps', 'evaluator'] : " \
  "self.framework == 'pytorch' ? ['master'] : self.framework in ['mpi', 'horovod'] ? ['launcher'] : []))"

}  // namespace

const std::vector<CelRule>& CrossFieldRules() {
  static const std::vector<CelRule> kRules = {
      {"",
       "metadata.name",
       {},
       "",
       "size(self.metadata.name) <= 48",
       "must be at most 48 characters (got {size(self.metadata.name)}): pods are named NAME-ATTEMPT-RANK, "
       "and a "
       "host name has at most 63 characters"},
      {"",
       "metadata.name",
       {},
       "",
       "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
       "must consist of lower-case letters, digits and '-', and start and end with a letter or digit (got "
       "\"{self.metadata.name}\")"},

      {"",
       "metadata.name",
       {},
       "has(self.spec.roles) && self.spec.roles.exists(r, r.name != 'master') && size(self.metadata.name) <= "
       "48",
       "size(self.metadata.name) <= 38",
       "must be at most 38 characters with spec.roles (got {size(self.metadata.name)}): pods are named "
       "NAME-ATTEMPT-ROLE-INDEX"},

      {"spec.workers",
       "min",
       {"min", "max"},
       "has(self.min) && has(self.max)",
       "self.min <= self.max",
       "must be at most spec.workers.max (got {self.min} > {self.max})"},
      {"spec.workers",
       "min",
       {"min", "replicas"},
       "has(self.min) && !(has(self.max) && self.min > self.max)",
       "self.min <= self.replicas",
       "must be at most spec.workers.replicas (got {self.min} > {self.replicas})"},
      {"spec.workers",
       "max",
       {"max", "replicas"},
       "has(self.max)",
       "self.max >= self.replicas",
       "must be at least spec.workers.replicas (got {self.max} < {self.replicas})"},

      {"spec",
       "training",
       {"framework"},
       "self.framework == 'native'",
       "has(self.training)",
       "required when spec.framework is native",
       kMissing},
      {"spec",
       "training",
       {"framework"},
       "has(self.training)",
       "self.framework == 'native'",
       "allowed only when spec.framework is native (got \"{self.framework}\")",
       kForbidden},
      {"spec",
       "workers.template",
       {"framework"},
       "self.framework != 'native'",
       "has(self.workers.template)",
       "required when spec.framework is {self.framework}",
       kMissing},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.framework == 'native'",
       "self.launch.kind == 'ranks'",
       "must be ranks when spec.framework is native (got \"{self.launch.kind}\"): its agents start the "
       "ranks"},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.launch.kind == 'library'",
       "!(self.framework in ['tensorflow', 'deepspeed', 'mpi', 'horovod'])",
       "must not be library when spec.framework is {self.framework}, whose processes communicate without the "
       "library; use pytorch, jax or custom"},
      {"spec",
       "lifecycle.success",
       {"framework", "lifecycle.success"},
       "self.framework == 'native' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'AllWorkers'",
       "must be AllWorkers when spec.framework is native (got \"{self.lifecycle.success}\"): its ranks end "
       "together"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework != 'native' && self.launch.kind == 'library' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'AllWorkers'",
       "must be AllWorkers when spec.launch.kind is library (got \"{self.lifecycle.success}\"): its ranks "
       "end "
       "together"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework != 'native' && self.launch.kind != 'library' && has(self.lifecycle.success) && "
       "self.lifecycle.success == 'Chief'",
       "has(self.roles) && self.roles.exists(r, r.name == 'chief')",
       "must not be Chief without a role named chief; add it to spec.roles, or use Rank0"},
      {"spec",
       "launch.mpi",
       {"framework"},
       "self.framework == 'mpi'",
       "has(self.launch.mpi)",
       "required when spec.framework is mpi: openmpi, mpich or intel, as installed in the image",
       kMissing},
      {"spec",
       "launch.mpi",
       {"framework"},
       "has(self.launch.mpi)",
       "self.framework in ['mpi', 'horovod']",
       "allowed only when spec.framework is mpi or horovod (got \"{self.framework}\")",
       kForbidden},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework in ['mpi', 'horovod'] && self.launch.kind != 'library' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'Launcher'",
       "must be Launcher when spec.framework is {self.framework} (got \"{self.lifecycle.success}\"): only "
       "the launcher runs the command; remove it"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "!(self.framework in ['native', 'mpi', 'horovod']) && self.launch.kind != 'library' && "
       "has(self.lifecycle.success)",
       "self.lifecycle.success != 'Launcher'",
       "must not be Launcher when spec.framework is {self.framework}, which has no launcher; use Rank0"},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.framework in ['mpi', 'horovod']",
       "self.launch.kind != 'none'",
       "must be ranks when spec.framework is {self.framework}: the launcher reaches the other workers "
       "through their agents"},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "self.framework in ['mpi', 'horovod'] && self.launch.kind == 'ranks' && has(self.launch.preload)",
       "size(self.launch.preload) == 0",
       "must be empty when spec.framework is {self.framework}: the launcher starts the ranks; remove it"},
      {"spec",
       "workers",
       {"framework", "workers.min", "workers.max"},
       "self.framework == 'mpi'",
       "!has(self.workers.min) && !has(self.workers.max)",
       "min and max do not apply when spec.framework is mpi: MPI_COMM_WORLD has a fixed size; remove them, "
       "and change replicas instead"},
      {"spec",
       "workers",
       {"framework", "workers.min", "workers.max"},
       "self.framework == 'horovod' && (has(self.workers.min) || has(self.workers.max))",
       "has(self.roles) && self.roles.exists(r, r.name == 'launcher')",
       "min and max need the role launcher when spec.framework is horovod: its pod must outlive the workers; "
       "add it to spec.roles, or remove them"},
      {"spec",
       "roles",
       {"framework"},
       "has(self.roles)",
       ROLES_KNOWN,
       "framework {self.framework} has no such role: tensorflow has chief, ps and evaluator, pytorch has "
       "master, mpi and horovod have launcher"},
      {"spec",
       "roles",
       {"framework"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name == 'ps')",
       "self.roles.exists(r, r.name == 'chief') || (has(self.lifecycle.success) && self.lifecycle.success == "
       "'Rank0')",
       "ps needs a chief, whose end is the end of the job: workers and parameter servers run on; add the "
       "role chief, or set lifecycle.success to Rank0"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name != 'master')",
       "self.launch.kind != 'none'",
       "must have no pods when spec.launch.kind is none: the agents start the roles; remove launch.kind"},
      {"spec",
       "workers",
       {"framework", "workers.min", "workers.max"},
       "has(self.roles) && self.framework != 'horovod' && (" ROLES_KNOWN
       ") && self.roles.exists(r, r.name != 'master')",
       "!has(self.workers.min) && !has(self.workers.max)",
       "min and max do not apply with spec.roles: the gang has a fixed size; remove them"},
      {"spec",
       "network.hostNetwork",
       {"framework"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name != 'master')",
       "!self.network.hostNetwork",
       "must be false with spec.roles: ports of the nodes are allocated for workers only"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.framework != 'native' && self.launch.kind == 'library'",
       "size(self.roles) == 0",
       "must be empty when spec.launch.kind is library: all of its ranks are equal; remove it"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.launch.kind == 'ranks'",
       "self.roles.all(r, !has(r.template) || (has(r.template.spec) && has(r.template.spec.containers) && "
       "(r.template.spec.containers.exists(c, c.name == 'worker') ? r.template.spec.containers.exists(c, "
       "c.name == 'worker' && " HAS_COMMAND("c") ") : size(r.template.spec.containers) > 0 && " HAS_COMMAND(
           "r.template.spec.containers[0]") ")))",
       "the container that trains must have a command when spec.launch.kind is ranks: the agent starts it"},
      {"spec.roles[]",
       "replicas",
       {"name", "replicas"},
       "self.name != 'ps'",
       "self.replicas == 1",
       "must be 1 for {self.name} (got {self.replicas})"},
      {"spec.roles[]",
       "template",
       {"name"},
       "self.name == 'master'",
       "has(self.template)",
       "required for master, which is the first worker with this template",
       kMissing},
      {"spec.roles[]",
       "",
       {"name"},
       "self.name == 'master'",
       "!has(self.restart) && !has(self.completes)",
       "restart and completes do not apply to master: it is the first worker; remove them"},
      {"spec.roles[]",
       "",
       {"name", "restart"},
       "self.name == 'launcher'",
       "(!has(self.restart) || self.restart == 'Gang') && !has(self.completes)",
       "restart and completes do not apply to launcher: it decides, and starts again with all ranks; remove "
       "them"},
      {"spec.roles[]",
       "restart",
       {"name", "restart"},
       "self.name == 'chief' && has(self.restart)",
       "self.restart != 'Never'",
       "must be Gang or Pod for chief: without it the job never ends"},
      {"spec.roles[]",
       "restart",
       {"name", "restart"},
       "self.name in ['ps', 'evaluator'] && has(self.restart) && has(self.completes) && self.completes",
       "self.restart != 'Never'",
       "Never requires completes: false: otherwise the job never ends"},
      {"spec",
       "workers.template.spec.containers",
       {"framework", "launch.kind"},
       "self.framework != 'native' && self.launch.kind != 'none' && has(self.workers.template) && "
       "!(self.framework in ['mpi', 'horovod'] && has(self.roles) && self.roles.exists(r, r.name == "
       "'launcher' && "
       "has(r.template)))",
       "has(self.workers.template.spec) && has(" CONTAINERS ") && (" CONTAINERS
       ".exists(c, c.name == 'worker') ? " CONTAINERS ".exists(c, c.name == 'worker' && " HAS_COMMAND(
           "c") ") : size(" CONTAINERS ") > 0 && " HAS_COMMAND(CONTAINERS "[0]") ")",
       "the container that trains must have a command when spec.launch.kind is {self.launch.kind}: the agent "
       "starts it, and the ENTRYPOINT of an image is unknown; set command, or set spec.launch.kind to none"},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "has(self.launch.preload) && size(self.launch.preload) > 0",
       "self.framework != 'native' && self.launch.kind == 'ranks'",
       "allowed only when all ranks of a program restart together: spec.framework is {self.framework}, "
       "spec.launch.kind is {self.launch.kind}; remove it",
       kForbidden},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "has(self.launch.preload) && size(self.launch.preload) > 0 && self.framework != 'native' && "
       "self.launch.kind == 'ranks' && has(self.workers.template) && has(self.workers.template.spec) && "
       "has(" CONTAINERS ") && size(" CONTAINERS ") > 0",
       CONTAINERS ".exists(c, c.name == 'worker') ? " CONTAINERS
                  ".exists(c, c.name == 'worker' && (" IS_PYTHON("c") ")) : " IS_PYTHON(CONTAINERS "[0]"),
       "the command must be python with a script or a module: the modules are imported in the process that "
       "runs it"},
      {"spec",
       "workers.slots",
       {"framework", "launch.kind", "workers.slots"},
       "self.framework in ['tensorflow', 'jax'] && self.launch.kind != 'library'",
       SLOTS " == '1'",
       "must be 1 when spec.framework is {self.framework} (got {" SLOTS
       "}): one process uses all GPUs of its worker"},
      {"spec",
       "workers.slots",
       {"framework", "launch.kind", "workers.slots"},
       "self.framework in ['pytorch', 'deepspeed'] && self.launch.kind == 'ranks' && "
       "has(self.workers.template) && has(self.workers.template.spec) && has(" CONTAINERS
       ") && size(" CONTAINERS ") > 0 && (" CONTAINERS ".exists(c, c.name == 'worker') ? " CONTAINERS
       ".exists(c, c.name == 'worker' && " IS_TORCHRUN("c") ") : " IS_TORCHRUN(CONTAINERS "[0]") ")",
       SLOTS " == '1'",
       "must be 1 when the command is torchrun (got {" SLOTS
       "}): the agent starts the command in each slot, but one torchrun starts all ranks of a worker; set "
       "slots to 1 and the variable PET_NPROC_PER_NODE in the template, or run the script without torchrun"},
      {"spec",
       "workers.replicas",
       {"framework", "workers.replicas"},
       "self.framework == 'tensorflow'",
       "self.workers.replicas <= 1000",
       "must be at most 1000 when spec.framework is tensorflow (got {self.workers.replicas}): the "
       "environment variable TF_CONFIG lists all of them"},
      {"spec",
       "workers.max",
       {"framework", "workers.max"},
       "self.framework == 'tensorflow' && has(self.workers.max)",
       "self.workers.max <= 1000",
       "must be at most 1000 when spec.framework is tensorflow (got {self.workers.max}): the "
       "environment variable TF_CONFIG lists all of them"},
      {"spec",
       "training.batch.microBatches",
       {"workers.replicas", "workers.max", "workers.slots", "training.batch.microBatches"},
       "has(self.training)",
       "self.training.batch.microBatches >= " RANKS,
       "must be at least {has(self.workers.max) ? 'spec.workers.max' : 'spec.workers.replicas'}"
       "{" SLOTS " in ['1', 'gpu'] ? '' : ' times spec.workers.slots'} "
       "(got {self.training.batch.microBatches} < {" RANKS "}): "
       "every {" SLOTS " in ['1', 'gpu'] ? 'worker' : 'rank'} needs one"},

      {"spec.scheduling",
       "preempt",
       {"gang", "preempt"},
       "self.preempt",
       "self.gang in ['auto', 'gate']",
       "allowed only when spec.scheduling.gang is auto or gate (got \"{self.gang}\"): with another one the "
       "scheduler preempts",
       kForbidden},
      {"spec.scheduling",
       "preempt",
       {"autoscaler", "preempt"},
       "self.preempt",
       "!self.autoscaler",
       "must be false when spec.scheduling.autoscaler is true: nodes are added for the job"},

      {"spec",
       "scheduling.topology",
       {},
       "has(self.scheduling) && has(self.scheduling.topology) && "
       "((has(self.scheduling.topology.required) && self.scheduling.topology.required != '') || "
       "(has(self.scheduling.topology.preferred) && self.scheduling.topology.preferred != ''))",
       "!(" ASKS_KUEUE("self.workers.template") ") && (!has(self.roles) || !self.roles.exists(r, " ASKS_KUEUE(
           "r.template") "))",
       "must be empty when a template has an annotation kueue.x-k8s.io/podset-...-topology: either Kueue "
       "chooses the nodes or the operator does; remove one of the two",
       kForbidden},

      {"spec.training",
       "",
       {"steps", "epochs"},
       "",
       "(self.steps > 0) != (self.epochs > 0)",
       "exactly one of steps and epochs must be given (got {self.steps > 0 ? 'both' : 'neither'})"},
      {"spec.training",
       "optimizer.warmupSteps",
       {"steps", "epochs", "optimizer.warmupSteps"},
       "self.steps > 0 && self.epochs == 0",
       "self.optimizer.warmupSteps <= self.steps",
       "must be at most spec.training.steps (got {self.optimizer.warmupSteps} > {self.steps})"},
      {"spec.training",
       "data.kind",
       {"model.kind", "data.kind"},
       "",
       "(self.model.kind == 'gpt') == (self.data.kind in ['text', 'tokens'])",
       "must be {self.model.kind == 'gpt' ? 'text or tokens' : 'idx or cifar10'} for model kind "
       "{self.model.kind} (got \"{self.data.kind}\")"},
      {"spec.training",
       "model.tokenizer",
       {"model.kind", "data.kind", "model.tokenizer"},
       "self.model.kind == 'gpt' && self.data.kind in ['text', 'tokens']",
       "self.model.tokenizer == (self.data.kind == 'text' ? 'bytes' : 'none')",
       "must be {self.data.kind == 'text' ? 'bytes' : 'none'} for data kind {self.data.kind} (got "
       "\"{self.model.tokenizer}\")"},
      {"spec.training",
       "model.vocabulary",
       {"model.kind", "data.kind", "model.tokenizer", "model.vocabulary"},
       "self.model.kind == 'gpt' && self.data.kind == 'tokens' && self.model.tokenizer == 'none'",
       "self.model.vocabulary > 0",
       "must be above 0 when tokenizer is none: the vocabulary size of the data"},
      {"spec.training",
       "model.vocabulary",
       {"model.kind", "data.kind", "model.tokenizer", "model.vocabulary"},
       "self.model.kind == 'gpt' && self.data.kind == 'text' && self.model.tokenizer == 'bytes'",
       "self.model.vocabulary in [0, 256]",
       "must be 256 or omitted when tokenizer is bytes (got {self.model.vocabulary})"},
      {"spec.training.model",
       "width",
       {"kind", "width", "heads"},
       "self.kind == 'gpt'",
       "self.width % self.heads == 0",
       "must be a multiple of spec.training.model.heads (got {self.width} and {self.heads})"},
      {"spec.training.batch",
       "samplesPerStep",
       {"samplesPerStep", "microBatches"},
       "",
       "self.samplesPerStep % self.microBatches == 0",
       "must be a multiple of spec.training.batch.microBatches (got {self.samplesPerStep} and "
       "{self.microBatches})"},
      {"spec.training.optimizer",
       "minLearningRate",
       {"minLearningRate", "learningRate"},
       "",
       "double(self.minLearningRate) <= double(self.learningRate)",
       "must be at most spec.training.optimizer.learningRate (got {self.minLearningRate} > "
       "{self.learningRate})"},

      {"spec.network.rdma",
       "",
       {"resource", "claimTemplate"},
       "",
       "has(self.resource) && self.resource != '' ? !has(self.claimTemplate) || self.claimTemplate == '' "
       ": has(self.claimTemplate) && self.claimTemplate != ''",
       "exactly one of resource and claimTemplate must be given (got {has(self.resource) && self.resource != "
       "'' "
       "? 'both' : 'neither'})"},
      {"spec.restart.backoff",
       "initialSeconds",
       {"initialSeconds", "maxSeconds"},
       "",
       "self.initialSeconds <= self.maxSeconds",
       "must be at most spec.restart.backoff.maxSeconds (got {self.initialSeconds} > {self.maxSeconds})"},
      {"spec.restart.rules[].when",
       "",
       {},
       "",
       "(has(self.exitCodes) && size(self.exitCodes) > 0) || has(self.nodeUnreachable) || has(self.hang) || "
       "(has(self.podCondition) && self.podCondition != '') || (has(self.messageRegex) && self.messageRegex "
       "!= "
       "'')",
       "must have at least one criterion"},
      {"spec.restart.rules",
       "",
       {},
       "",
       "self.all(a, self.exists_one(b, "
       "(has(a.when.exitCodes) ? a.when.exitCodes : []) == (has(b.when.exitCodes) ? b.when.exitCodes : []) "
       "&& "
       "has(a.when.nodeUnreachable) == has(b.when.nodeUnreachable) && (!has(a.when.nodeUnreachable) || "
       "a.when.nodeUnreachable == b.when.nodeUnreachable) && "
       "has(a.when.hang) == has(b.when.hang) && (!has(a.when.hang) || a.when.hang == b.when.hang) && "
       "(has(a.when.podCondition) ? a.when.podCondition : '') == (has(b.when.podCondition) ? "
       "b.when.podCondition : '') && "
       "(has(a.when.messageRegex) ? a.when.messageRegex : '') == (has(b.when.messageRegex) ? "
       "b.when.messageRegex : '')))",
       "two rules have the same criteria: the later one never applies"},
  };
  return kRules;
}

#undef SLOTS
#undef RANKS
#undef CONTAINERS
#undef HAS_COMMAND
#undef IS_PYTHON
#undef IS_TORCHRUN
#undef PODSET
#undef ASKS_KUEUE
#undef ROLES_KNOWN

}  // namespace ringmaster::api
