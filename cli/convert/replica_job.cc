// SPDX-License-Identifier: Apache-2.0

// PyTorchJob, TFJob, JAXJob and MPIJob: replica specs by role, and a run policy.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "cli/convert/convert.h"

namespace ringmaster::cli::convert {
namespace {

struct Kind {
  const char* version;
  const char* name;
  const char* roles;  // the map of replica specs
  const char* framework;
  const char* container;       // the one that trains
  const char* restart_policy;  // the default
};
constexpr std::array<Kind, 5> kKinds = {{
    {"kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "pytorch", "pytorch", "OnFailure"},
    {"kubeflow.org/v1", "TFJob", "tfReplicaSpecs", "tensorflow", "tensorflow", "Never"},
    {"kubeflow.org/v1", "JAXJob", "jaxReplicaSpecs", "jax", "jax", "Never"},
    {"kubeflow.org/v1", "MPIJob", "mpiReplicaSpecs", "mpi", "", "Never"},
    {"kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", "mpi", "", "OnFailure"},
}};

const Kind* KindOf(const std::string& api_version, const std::string& name) {
  const auto* const found = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& kind) {
    return kind.version == api_version && kind.name == name;
  });
  return found == kKinds.end() ? nullptr : found;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct Role {
  std::string name;  // lower case: master, worker; of a TFJob as in TF_CONFIG
  std::string path;
  int64_t replicas = 1;
  std::string restart_policy;
  Json pod_template;
};

// Returns the path of the first difference between two values, or nothing.
std::optional<std::string> Difference(const Json& a, const Json& b, const std::string& path) {
  if (a == b) return std::nullopt;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      if (!b.contains(key)) return path + "." + key;
      if (auto inner = Difference(value, b[key], path + "." + key)) return inner;
    }
    for (const auto& [key, value] : b.items()) {
      if (!a.contains(key)) return path + "." + key;
    }
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (auto inner = Difference(a[i], b[i], fmt::format("{}[{}]", path, i))) return inner;
    }
  }
  return path;
}

class ReplicaJob {
 public:
  ReplicaJob(Source& source, const Kind& kind, Json& job) : source_(source), kind_(kind), job_(job) {}

  void Convert() {
    ConvertMetadata(source_, job_);
    Spec()["framework"] = kind_.framework;
    const std::vector<Role> roles = Roles();
    RunPolicy();
    if (kind_.name == std::string("PyTorchJob")) {
      ElasticPolicy();
      // With a Master the job succeeds with it, whatever the workers do then.
      if (roles.size() > 1 && roles.front().name == "master") Spec()["lifecycle"]["success"] = "Rank0";
    }
    if (kind_.name == std::string("TFJob")) SuccessPolicy(roles);
    if (kind_.framework == std::string("mpi")) return Mpi(roles);
    if (!roles.empty()) Workers(roles);
  }

 private:
  Json& Spec() { return job_["spec"]; }

  std::vector<Role> Roles() {
    const std::string map = fmt::format("spec.{}", kind_.roles);
    const api::Node* node = source_.Find(map);
    std::vector<Role> roles;
    if (node != nullptr) {
      for (const api::Member& member : node->members) {
        Role role;
        role.name = Lower(member.key);
        // Names of a TFJob's chief in its older versions.
        if (kind_.framework == std::string("tensorflow") && role.name == "master") role.name = "chief";
        if (kind_.framework == std::string("tensorflow") && role.name == "eval") role.name = "evaluator";
        role.path = map + "." + member.key;
        if (!Fits(role)) continue;
        const bool none = role.name == "worker" && kind_.framework == std::string("mpi");
        role.replicas = source_.TakeInteger(role.path + ".replicas").value_or(none ? 0 : 1);
        role.restart_policy = source_.TakeText(role.path + ".restartPolicy").value_or(kind_.restart_policy);
        role.pod_template = source_.TakeObject(role.path + ".template").value_or(Json::object());
        if (role.replicas < 1)
          source_.Note(role.path, "was left out: it has no replicas");
        else
          roles.push_back(std::move(role));
      }
    }
    if (roles.empty() && !source_.refused()) source_.Refuse(map, "must have a role with replicas");
    std::sort(roles.begin(), roles.end(), [](const Role& a, const Role& b) { return a.name < b.name; });
    return roles;
  }

  // Whether a TrainingJob can have the role.
  bool Fits(const Role& role) {
    if (role.name == "worker") return true;
    if (role.name == "launcher" && kind_.framework == std::string("mpi")) return true;
    if (role.name == "master" && kind_.framework == std::string("pytorch")) return true;
    const bool known = role.name == "chief" || role.name == "ps" || role.name == "evaluator";
    if (known && kind_.framework == std::string("tensorflow")) return true;
    source_.Take(role.path);
    source_.Refuse(role.path,
                   fmt::format("a TrainingJob of framework {} has no role {}", kind_.framework, role.name));
    return false;
  }

  static bool IsOf(const Role& role, bool worker) {
    return worker == (role.name == "worker" || role.name == "master");
  }

  void Workers(std::vector<Role> roles) {
    // A chief without workers is the only worker.
    if (roles.size() == 1 && roles.front().name == "chief") roles.front().name = "worker";
    std::vector<Role> workers, others;
    for (Role& role : roles) (IsOf(role, true) ? workers : others).push_back(std::move(role));
    if (workers.empty())
      return source_.Refuse(fmt::format("spec.{}", kind_.roles), "must have the role Worker");
    const Role& first = workers.front();  // the master, if there is one: rank 0
    const Role& last = workers.back();
    int64_t replicas = 0;
    for (const Role& role : workers) replicas += role.replicas;
    Spec()["workers"]["replicas"] = replicas;
    if (Difference(first.pod_template, last.pod_template, "")) {
      AddRole(first, {{"name", "master"}});
      if (first.replicas > 1) source_.Refuse(first.path + ".replicas", "must be 1: the Master is rank 0");
    }
    for (const Role& role : others) AddRole(role, {{"name", role.name}}, &last);
    // The policy of the role that decides about the job.
    const auto chief =
        std::find_if(others.begin(), others.end(), [](const Role& role) { return role.name == "chief"; });
    const Role& decider = chief == others.end() ? first : *chief;
    Restart(decider);
    for (const std::vector<Role>* list : {&workers, &others}) {
      for (const Role& role : *list) Compare(role, decider);
    }
    const std::string path = last.path + ".template";
    const auto [processes, processes_path] = Processes();
    UseTemplate(source_, {path, kind_.container, path + ".spec.containers"}, last.pod_template, processes,
                processes_path, job_);
    if (!others.empty() && Spec().contains("launch"))
      source_.Refuse(path + ".spec.containers",
                     "must have a command: the agents start the programs of roles");
  }

  // A job without workers has one that is the launcher.
  void Mpi(const std::vector<Role>& roles) {
    Spec()["launch"]["mpi"] = TakeMpi(source_, "spec.mpiImplementation");
    const int64_t slots = source_.TakeInteger("spec.slotsPerWorker").value_or(1);
    const bool launcher_works = source_.TakeFlag("spec.runLauncherAsWorker").value_or(false);
    const std::string minimum = "spec.runPolicy.schedulingPolicy.minAvailable";
    if (source_.Take(minimum) != nullptr) source_.Note(minimum, "was left out: all workers start together");
    if (roles.empty()) return;
    const Role& launcher = roles.front();
    const Role& worker = roles.back();
    if (launcher.name != "launcher")
      return source_.Refuse(fmt::format("spec.{}", kind_.roles), "must have the role Launcher");
    if (launcher.replicas != 1) source_.Refuse(launcher.path + ".replicas", "must be 1");
    Restart(launcher);
    const bool separate = roles.size() > 1;
    const int64_t replicas = separate ? worker.replicas + (launcher_works ? 1 : 0) : 1;
    Spec()["workers"]["replicas"] = replicas;
    if (slots != 1) Spec()["workers"]["slots"] = std::to_string(slots);
    ConvertMpiPods(
        source_,
        {launcher.pod_template, launcher.path + ".template", worker.pod_template, worker.path + ".template",
         replicas, slots, separate && !launcher_works, launcher.path + ".template.spec.containers"},
        job_);
  }

  // Adds an entry of spec.roles, with a template unless it is that of the workers.
  void AddRole(const Role& role, Json entry, const Role* workers = nullptr) {
    if (role.replicas != 1) entry["replicas"] = role.replicas;
    if (role.name == "ps" && role.restart_policy == "Never") entry["restart"] = "Gang";
    if (role.name == "evaluator" && role.restart_policy == "Never") entry["restart"] = "Never";
    if (workers == nullptr || Difference(role.pod_template, workers->pod_template, "")) {
      const std::string path = role.path + ".template";
      const auto [processes, processes_path] = Processes();
      Json scratch = {{"spec", {{"framework", kind_.framework}}}};
      UseTemplate(source_, {path, kind_.container, path + ".spec.containers"}, role.pod_template, processes,
                  processes_path, scratch);
      if (scratch["spec"].contains("launch") && role.name != "master")
        source_.Refuse(path + ".spec.containers",
                       "must have a command: the agents start the programs of roles");
      if (scratch["spec"].contains("workers"))
        entry["template"] = std::move(scratch["spec"]["workers"]["template"]);
    }
    Spec()["roles"].push_back(std::move(entry));
  }

  void Compare(const Role& role, const Role& decider) {
    if (role.restart_policy == decider.restart_policy || role.name == "evaluator") return;
    source_.Note(role.path + ".restartPolicy",
                 fmt::format("{} decides about all programs", decider.restart_policy));
  }

  std::pair<std::string, std::string> Processes() {
    const std::string path = "spec.nprocPerNode";
    if (kind_.framework != std::string("pytorch")) return {};
    const api::Node* node = source_.Take(path);
    if (node == nullptr) {
      const std::string old = "spec.elasticPolicy.nProcPerNode";
      const auto number = source_.TakeInteger(old);
      return {number ? std::to_string(*number) : std::string(), number ? old : path};
    }
    return {node->scalar.is_string() ? node->scalar.get<std::string>() : DumpJson(node->scalar), path};
  }

  void Restart(const Role& role) {
    if (role.restart_policy == "Never") {
      Spec()["restart"]["maxRestarts"] = 0;
    } else if (role.restart_policy == "ExitCode") {
      // Codes up to 127 are permanent errors there.
      Json codes = Json::array();
      for (int code = 1; code <= 127; ++code) codes.push_back(code);
      Spec()["restart"]["rules"] =
          Json::array({{{"when", {{"exitCodes", std::move(codes)}}}, {"action", "Fail"}}});
    } else if (role.restart_policy != "OnFailure" && role.restart_policy != "Always") {
      source_.Refuse(
          role.path + ".restartPolicy",
          fmt::format("must be one of Always, OnFailure, Never, ExitCode (got \"{}\")", role.restart_policy));
    }
  }

  void Integer(const std::string& from, const char* object, const char* field) {
    if (const auto value = source_.TakeInteger(from)) Spec()[object][field] = *value;
  }
  void Text(const std::string& from, const char* object, const char* field) {
    if (auto value = source_.TakeText(from)) Spec()[object][field] = std::move(*value);
  }

  void RunPolicy() {
    const std::string policy = "spec.runPolicy.";
    if (kind_.framework == std::string("mpi")) Text("spec.cleanPodPolicy", "lifecycle", "cleanPods");  // v1
    Text(policy + "cleanPodPolicy", "lifecycle", "cleanPods");
    Integer(policy + "ttlSecondsAfterFinished", "lifecycle", "ttlSecondsAfterFinished");
    Integer(policy + "activeDeadlineSeconds", "lifecycle", "activeDeadlineSeconds");
    Integer(policy + "backoffLimit", "restart", "maxRestarts");
    if (const auto suspend = source_.TakeFlag(policy + "suspend")) Spec()["suspend"] = *suspend;
    if (auto manager = source_.TakeText(policy + "managedBy");
        manager && *manager != "kubeflow.org/training-operator" && *manager != "kubeflow.org/mpi-operator")
      Spec()["managedBy"] = std::move(*manager);
    Text(policy + "schedulingPolicy.queue", "scheduling", "queue");
    Text(policy + "schedulingPolicy.priorityClass", "scheduling", "priorityClassName");
    Integer(policy + "schedulingPolicy.scheduleTimeoutSeconds", "scheduling", "timeoutSeconds");
  }

  void ElasticPolicy() {
    Integer("spec.elasticPolicy.minReplicas", "workers", "min");
    Integer("spec.elasticPolicy.maxReplicas", "workers", "max");
    Integer("spec.elasticPolicy.maxRestarts", "restart", "maxRestarts");
  }

  // Without a policy a TFJob succeeds with its chief, or with worker 0.
  void SuccessPolicy(const std::vector<Role>& roles) {
    const bool chief = roles.size() > 1 && roles.front().name == "chief";
    const auto policy = source_.TakeText("spec.successPolicy");
    if (!policy || policy->empty()) {
      if (!chief && (roles.size() > 1 || (!roles.empty() && roles.front().replicas > 1)))
        Spec()["lifecycle"]["success"] = "Rank0";
    } else if (*policy == "AllWorkers") {
      if (chief) Spec()["lifecycle"]["success"] = "AllWorkers";
    } else {
      source_.Refuse("spec.successPolicy", fmt::format("must be AllWorkers or empty (got \"{}\")", *policy));
    }
  }

  Source& source_;
  const Kind& kind_;
  Json& job_;
};

std::string RemedyOfReplicaJob(const std::string& path) {
  if (path.starts_with("spec.elasticPolicy.rdzv") || path == "spec.elasticPolicy.standalone")
    return "the coordinator forms the gang, so no store and no rendezvous backend is needed";
  if (path == "spec.elasticPolicy.metrics")
    return "create a HorizontalPodAutoscaler for the scale subresource of the TrainingJob";
  if (path == "spec.runPolicy.schedulingPolicy.minAvailable")
    return "all workers start together; set workers.min for a gang that may be smaller";
  if (path == "spec.runPolicy.schedulingPolicy.minResources")
    return "the operator adds up the requests of the pods";
  if (path == "spec.enableDynamicWorker") return "set workers.min and workers.max for an elastic job";
  if (path == "spec.sshAuthMountPath") return "the agents take the place of SSH";
  if (path == "spec.mainContainer") return "the first container of each pod runs the ranks";
  if (path == "spec.launcherCreationPolicy") return "the launcher starts when all workers are there";
  return {};
}

}  // namespace

bool IsReplicaJob(const std::string& api_version, const std::string& kind) {
  return KindOf(api_version, kind) != nullptr;
}

void ConvertReplicaJob(Source& source, const std::string& api_version, const std::string& kind, Json& job) {
  ReplicaJob(source, *KindOf(api_version, kind), job).Convert();
  source.NoteUnused(RemedyOfReplicaJob);
}

}  // namespace ringmaster::cli::convert
