// SPDX-License-Identifier: Apache-2.0

#include "api/rules.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "api/launch.h"
#include "api/launcher_rules.h"
#include "api/launchers.h"
#include "api/path.h"
#include "api/pod_template.h"
#include "api/slots.h"

namespace ringmaster::api {
namespace {

constexpr int32_t kMostInTfConfig = 1000;
constexpr size_t kLongestNameWithRoles = 38;

// Whether the container that trains has a command.
bool HasCommand(const Json& pod_template) {
  const Json* container = TrainingContainer(pod_template);
  return container != nullptr && container->contains("command") && !(*container)["command"].empty();
}

// Whether the container that trains runs torchrun. The CRD knows the first word only.
bool RunsTorchrun(const Json& pod_template) {
  if (!HasCommand(pod_template)) return false;
  const Json& first = (*TrainingContainer(pod_template))["command"].front();
  if (first.is_string() && first.get<std::string>().find("torchrun") != std::string::npos) return true;
  const std::vector<LauncherCall> calls = FindLaunchers(pod_template);
  return std::any_of(calls.begin(), calls.end(),
                     [](const LauncherCall& call) { return call.kind == LauncherKind::kTorchrun; });
}

class Rulebook {
 public:
  Rulebook(const TrainingJob& job, std::vector<Problem>& problems)
      : job_(job),
        spec_(job.spec),
        library_(UsesLibrary(job.spec)),
        problems_(problems),
        known_(problems.size()) {}

  void Check() {
    Name();
    Workers();
    Framework();
    Network();
    Preempt();
    KueueTopology();
    Restart();
    if (spec_.training.has_value()) {
      Model(*spec_.training);
      Batch(*spec_.training);
      Length(*spec_.training);
    }
  }

 private:
  // Whether the fields that a rule reads have no problem. A problem of an ancestor counts, because the field
  // was not read then, and so does a problem of a descendant.
  bool Clean(std::initializer_list<std::string_view> paths) const {
    for (size_t i = 0; i < known_; ++i) {
      for (const std::string_view path : paths) {
        if (IsUnder(path, problems_[i].path) || IsUnder(problems_[i].path, path)) return false;
      }
    }
    return true;
  }
  void Add(std::string path, std::string message) {
    problems_.push_back({std::move(path), std::move(message)});
  }

  void Name() {
    if (job_.metadata.name.empty() && Clean({"metadata"})) Add("metadata.name", "required");
  }

  void Workers() {
    const auto& workers = spec_.workers;
    const bool min_clean = Clean({"spec.workers.min"}), max_clean = Clean({"spec.workers.max"});
    const bool replicas_clean = Clean({"spec.workers.replicas"});
    if (workers.min && workers.max && min_clean && max_clean && *workers.min > *workers.max) {
      Add("spec.workers.min",
          fmt::format("must be at most spec.workers.max (got {} > {})", *workers.min, *workers.max));
    } else if (workers.min && min_clean && replicas_clean && *workers.min > workers.replicas) {
      Add("spec.workers.min",
          fmt::format("must be at most spec.workers.replicas (got {} > {})", *workers.min, workers.replicas));
    }
    if (workers.max && max_clean && replicas_clean && *workers.max < workers.replicas) {
      Add("spec.workers.max", fmt::format("must be at least spec.workers.replicas (got {} < {})",
                                          *workers.max, workers.replicas));
    }
  }

  void Preempt() {
    const auto& scheduling = spec_.scheduling;
    if (!scheduling.preempt || !Clean({"spec.scheduling.preempt"})) return;
    if (Clean({"spec.scheduling.gang"}) && scheduling.gang != "auto" && scheduling.gang != "gate") {
      Add("spec.scheduling.preempt",
          fmt::format("allowed only when spec.scheduling.gang is auto or gate (got \"{}\"): with another one "
                      "the scheduler preempts",
                      scheduling.gang));
    }
    if (Clean({"spec.scheduling.autoscaler"}) && scheduling.autoscaler) {
      Add("spec.scheduling.preempt",
          "must be false when spec.scheduling.autoscaler is true: nodes are added for the job");
    }
  }

  void KueueTopology() {
    const auto& topology = spec_.scheduling.topology;
    if (topology.required.empty() && topology.preferred.empty()) return;
    if (!Clean({"spec.scheduling.topology", "spec.workers.template", "spec.roles"})) return;
    const bool asks = AsksKueueForTopology(spec_.workers.template_) ||
                      std::any_of(spec_.roles.begin(), spec_.roles.end(),
                                  [](const Role& role) { return AsksKueueForTopology(role.template_); });
    if (!asks) return;
    Add("spec.scheduling.topology",
        "must be empty when a template has an annotation kueue.x-k8s.io/podset-...-topology: either Kueue "
        "chooses the nodes or the operator does; remove one of the two");
  }

  void Framework() {
    if (!Clean({"spec.framework"})) return;
    const bool native = spec_.framework == "native";
    if (native && !spec_.training && Clean({"spec.training"})) {
      Add("spec.training", "required when spec.framework is native");
    }
    if (!native && spec_.training) {
      Add("spec.training",
          fmt::format("allowed only when spec.framework is native (got \"{}\")", spec_.framework));
    }
    if (!native && spec_.workers.template_.is_null() && Clean({"spec.workers.template"})) {
      Add("spec.workers.template", fmt::format("required when spec.framework is {}", spec_.framework));
    }
    const size_t before = problems_.size();
    Launch(native);
    Torchrun();
    Launcher();
    // The framework or the kind may be the mistake.
    if (problems_.size() == before && Clean({"spec.launch", "spec.workers", "spec.roles"}))
      CheckLaunchers(
          job_, [this](std::string path, std::string message) { Add(std::move(path), std::move(message)); });
    Roles();
    SharedGpus();
    const auto& workers = spec_.workers;
    const bool one_process = (spec_.framework == "tensorflow" || spec_.framework == "jax") && !library_;
    if (one_process && workers.slots != "1" && Clean({"spec.workers.slots", "spec.launch.kind"})) {
      Add("spec.workers.slots",
          fmt::format("must be 1 when spec.framework is {} (got {}): one process uses all GPUs of its worker",
                      spec_.framework, workers.slots));
    }
    if (spec_.framework != "tensorflow") return;
    TensorflowWorkers("spec.workers.replicas", workers.replicas);
    if (workers.max) TensorflowWorkers("spec.workers.max", *workers.max);
  }

  void Launch(bool native) {
    if (!Clean({"spec.launch"})) return;
    const std::string& kind = spec_.launch.kind;
    if (native && kind != "ranks") {
      Add("spec.launch.kind",
          fmt::format("must be ranks when spec.framework is native (got \"{}\"): its agents start the ranks",
                      kind));
    }
    const std::string& framework = spec_.framework;
    if (library_ && (framework == "tensorflow" || framework == "deepspeed" || HasLauncher(framework))) {
      Add("spec.launch.kind",
          fmt::format("must not be library when spec.framework is {}, whose processes communicate without "
                      "the library; use pytorch, jax or custom",
                      spec_.framework));
    }
    const std::string success = spec_.lifecycle.success.value_or("AllWorkers");
    if (native && success != "AllWorkers" && Clean({"spec.lifecycle.success"})) {
      Add("spec.lifecycle.success",
          fmt::format("must be AllWorkers when spec.framework is native (got \"{}\"): its ranks end together",
                      success));
    }
    if (library_ && success != "AllWorkers" && Clean({"spec.lifecycle.success"})) {
      Add("spec.lifecycle.success",
          fmt::format("must be AllWorkers when spec.launch.kind is library (got \"{}\"): its ranks end "
                      "together",
                      success));
    }
    const Json& pod_template = spec_.workers.template_;
    if (!spec_.launch.preload.empty() && (native || kind != "ranks")) {
      Add("spec.launch.preload",
          fmt::format("allowed only when all ranks of a program restart together: spec.framework is {}, "
                      "spec.launch.kind is {}; remove it",
                      spec_.framework, kind));
    }
    if (native || kind == "none" || pod_template.is_null() || !Clean({"spec.workers.template"})) return;
    if (!WorkersNeedCommand(spec_) && Clean({"spec.roles"})) return;
    if (const Json* container = TrainingContainer(pod_template);
        container != nullptr && container->contains("command") && !(*container)["command"].empty())
      return Preload((*container)["command"].front().get<std::string>());
    Add("spec.workers.template.spec.containers",
        fmt::format(
            "the container that trains must have a command when spec.launch.kind is {}: the agent starts it, "
            "and the ENTRYPOINT of an image is unknown; set command, or set spec.launch.kind to none",
            kind));
  }

  void Torchrun() {
    if (spec_.framework != "pytorch" && spec_.framework != "deepspeed") return;
    if (spec_.launch.kind != "ranks" || spec_.workers.slots == "1") return;
    if (!Clean({"spec.launch.kind", "spec.workers.slots", "spec.workers.template"})) return;
    if (!RunsTorchrun(spec_.workers.template_)) return;
    Add("spec.workers.slots",
        fmt::format("must be 1 when the command is torchrun (got {}): the agent starts the command in each "
                    "slot, but one torchrun starts all ranks of a worker; set slots to 1 and the variable "
                    "PET_NPROC_PER_NODE in the template, or run the script without torchrun",
                    spec_.workers.slots));
  }

  void Launcher() {
    const bool mpi = spec_.framework == "mpi";
    const bool launches = HasLauncher(spec_.framework);
    if (!Clean({"spec.launch"})) return;
    if (mpi && !spec_.launch.mpi) {
      Add("spec.launch.mpi",
          "required when spec.framework is mpi: openmpi, mpich or intel, as installed in the image");
    }
    if (!launches && spec_.launch.mpi) {
      Add("spec.launch.mpi",
          fmt::format("allowed only when spec.framework is mpi or horovod (got \"{}\")", spec_.framework));
    }
    const bool launcher = spec_.lifecycle.success.value_or("") == "Launcher";
    if (Clean({"spec.lifecycle.success"}) && launches && !launcher && spec_.lifecycle.success && !library_) {
      Add("spec.lifecycle.success",
          fmt::format("must be Launcher when spec.framework is {} (got \"{}\"): only the launcher runs the "
                      "command; remove it",
                      spec_.framework, *spec_.lifecycle.success));
    }
    if (Clean({"spec.lifecycle.success"}) && !launches && launcher && spec_.framework != "native" &&
        !library_) {
      Add("spec.lifecycle.success",
          fmt::format("must not be Launcher when spec.framework is {}, which has no launcher; use Rank0",
                      spec_.framework));
    }
    if (!launches) return;
    if (spec_.launch.kind == "none") {
      Add("spec.launch.kind",
          fmt::format(
              "must be ranks when spec.framework is {}: the launcher reaches the other workers through "
              "their agents",
              spec_.framework));
    }
    if (!spec_.launch.preload.empty() && spec_.launch.kind == "ranks") {
      Add("spec.launch.preload",
          fmt::format("must be empty when spec.framework is {}: the launcher starts the ranks; remove it",
                      spec_.framework));
    }
    const bool sized = (spec_.workers.min || spec_.workers.max) && Clean({"spec.workers"});
    if (mpi && sized) {
      Add("spec.workers",
          "min and max do not apply when spec.framework is mpi: MPI_COMM_WORLD has a fixed size; remove "
          "them, and change replicas instead");
    }
    if (!mpi && sized && FindRole(spec_, kLauncher) == nullptr && Clean({"spec.roles"})) {
      Add("spec.workers",
          "min and max need the role launcher when spec.framework is horovod: its pod must outlive the "
          "workers; add it to spec.roles, or remove them");
    }
  }

  // The agent checks the rest of the command, which `args` may continue.
  void Preload(const std::string& program) {
    if (library_ || spec_.launch.preload.empty() || program.find("python") != std::string::npos) return;
    Add("spec.launch.preload",
        "the command must be python with a script or a module: the modules are imported in the process that "
        "runs it");
  }

  void Roles() {
    if (!Clean({"spec.roles"})) return;
    const std::vector<Role>& roles = spec_.roles;
    const bool chief = FindRole(spec_, kChief) != nullptr;
    if (!chief && spec_.framework != "native" && !library_ && spec_.lifecycle.success == "Chief" &&
        Clean({"spec.lifecycle.success", "spec.launch.kind"})) {
      Add("spec.lifecycle.success",
          "must not be Chief without a role named chief; add it to spec.roles, or use Rank0");
    }
    const std::string_view known = RolesOf(spec_.framework);
    const auto is_known = [&](const Role& role) {
      return ("|" + std::string(known) + "|").find("|" + role.name + "|") != std::string::npos;
    };
    if (!std::all_of(roles.begin(), roles.end(), is_known)) {
      Add("spec.roles", fmt::format("framework {} has no such role: tensorflow has chief, ps and evaluator, "
                                    "pytorch has master, mpi and horovod have launcher",
                                    spec_.framework));
      return;
    }
    if (library_ && !roles.empty() && Clean({"spec.launch.kind"})) {
      Add("spec.roles",
          "must be empty when spec.launch.kind is library: all of its ranks are equal; remove it");
    }
    for (size_t i = 0; i < roles.size(); ++i) CheckRole(roles[i], fmt::format("spec.roles[{}]", i));
    if (!chief && FindRole(spec_, kParameterServer) != nullptr && spec_.lifecycle.success != "Rank0") {
      Add("spec.roles",
          "ps needs a chief, whose end is the end of the job: workers and parameter servers run on; add the "
          "role chief, or set lifecycle.success to Rank0");
    }
    const auto lacks_command = [](const Role& role) {
      return !role.template_.is_null() && !HasCommand(role.template_);
    };
    if (spec_.launch.kind == "ranks" && std::any_of(roles.begin(), roles.end(), lacks_command)) {
      Add("spec.roles",
          "the container that trains must have a command when spec.launch.kind is ranks: the agent starts "
          "it");
    }
    if (!std::any_of(roles.begin(), roles.end(), HasPods)) return;
    if (spec_.launch.kind == "none" && Clean({"spec.launch"})) {
      Add("spec.roles",
          "must have no pods when spec.launch.kind is none: the agents start the roles; remove "
          "launch.kind");
    }
    if ((spec_.workers.min || spec_.workers.max) && spec_.framework != "horovod" && Clean({"spec.workers"})) {
      Add("spec.workers", "min and max do not apply with spec.roles: the gang has a fixed size; remove them");
    }
    if (spec_.network.hostNetwork && Clean({"spec.network.hostNetwork"})) {
      Add("spec.network.hostNetwork",
          "must be false with spec.roles: ports of the nodes are allocated for workers only");
    }
    if (job_.metadata.name.size() > kLongestNameWithRoles && job_.metadata.name.size() <= 48 &&
        Clean({"metadata.name"})) {
      Add("metadata.name",
          fmt::format("must be at most {} characters with spec.roles (got {}): pods are named "
                      "NAME-ATTEMPT-ROLE-INDEX",
                      kLongestNameWithRoles, job_.metadata.name.size()));
    }
  }

  void CheckRole(const Role& role, const std::string& path) {
    if (role.name != kParameterServer && role.replicas != 1)
      Add(path + ".replicas", fmt::format("must be 1 for {} (got {})", role.name, role.replicas));
    if (role.name == kMaster) {
      if (role.template_.is_null())
        Add(path + ".template", "required for master, which is the first worker with this template");
      if (role.restart || role.completes)
        Add(path, "restart and completes do not apply to master: it is the first worker; remove them");
      MasterSlots(role, path);
    } else if (role.name == kLauncher && (role.restart.value_or("Gang") != "Gang" || role.completes)) {
      Add(path,
          "restart and completes do not apply to launcher: it decides, and starts again with all ranks; "
          "remove them");
    } else if (role.restart == "Never" && role.name == kChief) {
      Add(path + ".restart", "must be Gang or Pod for chief: without it the job never ends");
    } else if (role.restart == "Never" && CompletesOf(role)) {
      Add(path + ".restart", "Never requires completes: false: otherwise the job never ends");
    }
  }

  // All workers have the same number of ranks: the gang of a master with fewer would never be complete.
  void MasterSlots(const Role& role, const std::string& path) {
    if (spec_.workers.slots != "gpu" || role.template_.is_null() || !Clean({"spec.workers"})) return;
    api::Workers master = spec_.workers;
    master.template_ = role.template_;
    const int32_t own = SlotsOf(master), others = SlotsOf(spec_.workers);
    if (own == others) return;
    Add(path + ".template", fmt::format("must request as many GPUs as spec.workers.template when "
                                        "spec.workers.slots is gpu (got {} and {})",
                                        own, others));
  }

  // CUDA shows a process one MIG device, and replicas of a shared GPU may be the same one.
  void SharedGpus() {
    if (spec_.workers.slots != "gpu" || !Clean({"spec.workers"}) || SlotsOf(spec_.workers) == 1) return;
    const std::string resource = SharedGpuOf(spec_.workers);
    if (resource.empty()) return;
    Add("spec.workers.slots",
        fmt::format("must not be gpu with more than one {}: a rank needs a whole GPU to select it by its "
                    "number; request 1 in each pod, and more replicas",
                    resource));
  }

  // Linux limits an environment variable to 128 KiB.
  void TensorflowWorkers(const std::string& path, int32_t workers) {
    if (workers <= kMostInTfConfig || !Clean({path})) return;
    Add(path, fmt::format("must be at most {} when spec.framework is tensorflow (got {}): the "
                          "environment variable TF_CONFIG lists all of them",
                          kMostInTfConfig, workers));
  }

  void Model(const Training& training) {
    const auto& model = training.model;
    const auto& data = training.data;
    if (!Clean({"spec.training.model.kind"})) return;
    const bool gpt = model.kind == "gpt";
    if (gpt && Clean({"spec.training.model.width", "spec.training.model.heads"}) &&
        model.width % model.heads != 0) {
      Add("spec.training.model.width",
          fmt::format("must be a multiple of spec.training.model.heads (got {} and {})", model.width,
                      model.heads));
    }
    if (!Clean({"spec.training.data.kind"})) return;
    const bool tokens = data.kind == "text" || data.kind == "tokens";
    if (gpt != tokens) {
      Add("spec.training.data.kind",
          fmt::format("must be {} for model kind {} (got \"{}\")", gpt ? "text or tokens" : "idx or cifar10",
                      model.kind, data.kind));
    } else if (gpt) {
      Tokens(model, data);
    }
  }

  void Tokens(const api::Model& model, const Data& data) {
    if (!Clean({"spec.training.model.tokenizer"})) return;
    const char* wanted = data.kind == "text" ? "bytes" : "none";
    if (model.tokenizer != wanted) {
      return Add("spec.training.model.tokenizer",
                 fmt::format("must be {} for data kind {} (got \"{}\")", wanted, data.kind, model.tokenizer));
    }
    if (!Clean({"spec.training.model.vocabulary"})) return;
    if (model.tokenizer == "none" && model.vocabulary == 0) {
      Add("spec.training.model.vocabulary",
          "must be above 0 when tokenizer is none: the vocabulary size of the data");
    }
    if (model.tokenizer == "bytes" && model.vocabulary != 0 && model.vocabulary != 256) {
      Add("spec.training.model.vocabulary",
          fmt::format("must be 256 or omitted when tokenizer is bytes (got {})", model.vocabulary));
    }
  }

  void Batch(const Training& training) {
    const auto& batch = training.batch;
    if (!Clean({"spec.training.batch.microBatches"})) return;
    if (Clean({"spec.training.batch.samplesPerStep"}) && batch.samplesPerStep % batch.microBatches != 0) {
      Add("spec.training.batch.samplesPerStep",
          fmt::format("must be a multiple of spec.training.batch.microBatches (got {} and {})",
                      batch.samplesPerStep, batch.microBatches));
    }
    if (!Clean({"spec.workers.replicas", "spec.workers.max", "spec.workers.slots"})) return;
    const auto& workers = spec_.workers;
    // CEL cannot read the template, so the API server cannot check "gpu".
    const int64_t slots = SlotsOf(workers);
    const int64_t ranks = workers.EffectiveMax() * slots;
    if (batch.microBatches >= ranks) return;
    const char* limit = workers.max ? "spec.workers.max" : "spec.workers.replicas";
    if (slots == 1) {
      Add("spec.training.batch.microBatches",
          fmt::format("must be at least {} (got {} < {}): every worker needs one", limit, batch.microBatches,
                      ranks));
    } else {
      Add("spec.training.batch.microBatches",
          fmt::format("must be at least {} times spec.workers.slots (got {} < {}): every rank needs one",
                      limit, batch.microBatches, ranks));
    }
  }

  void Length(const Training& training) {
    if (!Clean({"spec.training.steps", "spec.training.epochs"})) return;
    if ((training.steps > 0) == (training.epochs > 0)) {
      Add("spec.training", fmt::format("exactly one of steps and epochs must be given (got {})",
                                       training.steps > 0 ? "both" : "neither"));
      return;
    }
    const auto& optimizer = training.optimizer;
    if (Clean({"spec.training.optimizer.warmupSteps"}) && training.steps > 0 &&
        optimizer.warmupSteps > training.steps) {
      Add("spec.training.optimizer.warmupSteps",
          fmt::format("must be at most spec.training.steps (got {} > {})", optimizer.warmupSteps,
                      training.steps));
    }
    if (!Clean({"spec.training.optimizer.minLearningRate", "spec.training.optimizer.learningRate"})) return;
    const auto least = ParseDecimal(optimizer.minLearningRate), rate = ParseDecimal(optimizer.learningRate);
    if (least.ok() && rate.ok() && *least > *rate) {
      Add("spec.training.optimizer.minLearningRate",
          fmt::format("must be at most spec.training.optimizer.learningRate (got {} > {})",
                      optimizer.minLearningRate, optimizer.learningRate));
    }
  }

  void Network() {
    if (!spec_.network.rdma || !Clean({"spec.network.rdma"})) return;
    const Rdma& rdma = *spec_.network.rdma;
    if (rdma.resource.empty() == rdma.claimTemplate.empty()) {
      Add("spec.network.rdma", fmt::format("exactly one of resource and claimTemplate must be given (got {})",
                                           rdma.resource.empty() ? "neither" : "both"));
    }
  }

  void Restart() {
    const auto& backoff = spec_.restart.backoff;
    if (Clean({"spec.restart.backoff"}) && backoff.initialSeconds > backoff.maxSeconds) {
      Add("spec.restart.backoff.initialSeconds",
          fmt::format("must be at most spec.restart.backoff.maxSeconds (got {} > {})", backoff.initialSeconds,
                      backoff.maxSeconds));
    }
    const auto& rules = spec_.restart.rules;
    for (size_t i = 0; i < rules.size(); ++i) {
      const std::string when = fmt::format("spec.restart.rules[{}].when", i);
      if (Clean({when}) && rules[i].on == RuleMatch{}) Add(when, "must have at least one criterion");
    }
    if (Clean({"spec.restart.rules"}) && HasTwins(rules)) {
      Add("spec.restart.rules", "two rules have the same criteria: the later one never applies");
    }
  }

  static bool HasTwins(const std::vector<RestartRule>& rules) {
    for (size_t i = 0; i < rules.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (SameMatch(rules[k].on, rules[i].on)) return true;
      }
    }
    return false;
  }
  static bool SameMatch(RuleMatch a, RuleMatch b) {
    std::sort(a.exitCodes.begin(), a.exitCodes.end());
    std::sort(b.exitCodes.begin(), b.exitCodes.end());
    return a == b;
  }

  const TrainingJob& job_;
  const Spec& spec_;
  const bool library_;
  std::vector<Problem>& problems_;
  const size_t known_;
};

}  // namespace

void CheckRules(const TrainingJob& job, std::vector<Problem>& problems) { Rulebook(job, problems).Check(); }

}  // namespace ringmaster::api
