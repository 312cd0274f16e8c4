// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/train_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/convert/convert.h"

namespace ringmaster::cli::convert {
namespace {

// In the release kTrainerRelease. A policy of mpi has a launcher, which works as a node.
struct Installed {
  const char* name;
  const char* policy;  // the member of mlPolicy
  const char* image;
};
constexpr std::array<Installed, 5> kInstalled = {{
    {"torch-distributed", "torch", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"},
    {"jax-distributed", "jax", "nvcr.io/nvidia/jax:25.10-py3"},
    {"deepspeed-distributed", "mpi", "ghcr.io/kubeflow/trainer/deepspeed-runtime:v2.3.0"},
    {"mlx-distributed", "mpi", "ghcr.io/kubeflow/trainer/mlx-runtime:v2.3.0"},
    {"xgboost-distributed", "xgboost", "ghcr.io/kubeflow/trainer/xgboost-runtime:v2.3.0"},
}};

constexpr const char* kLauncher = "launcher";
constexpr const char* kStepLabel = "trainer.kubeflow.org/trainjob-ancestor-step";
constexpr const char* kPolicy = "runtime.spec.mlPolicy";
constexpr const char* kJobSet = "runtime.spec.template.spec";

std::string TextOf(const api::Node* node) {
  return node != nullptr && node->scalar.is_string() ? node->scalar.get<std::string>() : std::string();
}

class RuntimeReader {
 public:
  RuntimeReader(Source& source, Json& job) : source_(source), job_(job) {}

  TrainRuntime Read() {
    for (const char* field : {"apiVersion", "kind", "metadata"})
      source_.Take(fmt::format("runtime.{}", field));
    Policy();
    GangScheduler();
    JobSet();
    ReplicatedJobs();
    if (!source_.refused()) Claims();
    return std::move(runtime_);
  }

 private:
  Json& Spec() { return job_["spec"]; }

  bool Has(const std::string& path) const { return source_.Find(path) != nullptr; }

  void Policy() {
    const std::string policy = fmt::format("{}.", kPolicy);
    runtime_.nodes = source_.TakeInteger(policy + "numNodes").value_or(1);
    if (Has(policy + "torch")) {
      runtime_.framework = "pytorch";
      // Releases before 2.2 have it.
      Processes(policy + "torch.numProcPerNode");
    } else if (Has(policy + "jax")) {
      source_.Take(policy + "jax");
      runtime_.framework = "jax";
    } else if (Has(policy + "mpi")) {
      runtime_.framework = "mpi";
      runtime_.mpi = TakeMpi(source_, policy + "mpi.mpiImplementation");
      runtime_.launcher_works = source_.TakeFlag(policy + "mpi.runLauncherAsNode").value_or(false);
      Processes(policy + "mpi.numProcPerNode");
    } else if (Has(policy + "xgboost")) {
      source_.Refuse(policy + "xgboost",
                     "a TrainingJob does not set DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID and "
                     "DMLC_NUM_WORKER: write one of framework pytorch with a command that sets them from "
                     "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE");
    } else if (Has(policy + "flux")) {
      source_.Refuse(
          policy + "flux",
          "the brokers of Flux start the ranks there, and a TrainingJob has none: use a runtime with "
          "mlPolicy.mpi, if the image has mpirun");
    } else {
      Plain();
    }
    Spec()["framework"] = runtime_.framework;
  }

  // Without a policy of a framework, Kubeflow Trainer starts pods only.
  void Plain() {
    const api::Node* policy = source_.Find(kPolicy);
    for (size_t i = 0; policy != nullptr && i < policy->members.size(); ++i) {
      const std::string& key = policy->members[i].key;
      if (key != "numNodes" && !policy->members[i].value.IsNull())
        source_.Refuse(fmt::format("{}.{}", kPolicy, key),
                       "is not known: a TrainingJob takes the place of the policies torch, jax and mpi");
    }
    runtime_.framework = "custom";
  }

  void Processes(const std::string& path) {
    const api::Node* node = source_.Take(path);
    if (node == nullptr) return;
    runtime_.processes = node->scalar.is_string() ? node->scalar.get<std::string>() : DumpJson(node->scalar);
    runtime_.processes_path = path;
  }

  void GangScheduler() {
    const std::string policy = "runtime.spec.podGroupPolicy.";
    if (const std::string path = policy + "volcano.networkTopology"; Has(policy + "volcano")) {
      Spec()["scheduling"]["gang"] = "volcano";
      if (source_.Take(path) != nullptr)
        source_.Note(path, "was left out: set scheduling.topology to the label of the nodes of a domain");
    }
    if (!Has(policy + "coscheduling")) return;
    Spec()["scheduling"]["gang"] = "coscheduling";
    const int64_t seconds = source_.TakeInteger(policy + "coscheduling.scheduleTimeoutSeconds").value_or(0);
    if (seconds > 0) Spec()["scheduling"]["timeoutSeconds"] = seconds;
  }

  void JobSet() {
    for (const char* field : {"labels", "annotations"}) {
      auto values = source_.TakeObject(fmt::format("runtime.spec.template.metadata.{}", field));
      if (!values || values->empty()) continue;
      Json& metadata = job_["metadata"];
      if (metadata.contains(field)) values->update(metadata[field]);  // the job's win
      metadata[field] = std::move(*values);
    }
    const std::string job_set = fmt::format("{}.", kJobSet);
    if (const auto restarts = source_.TakeInteger(job_set + "failurePolicy.maxRestarts"))
      Spec()["restart"]["maxRestarts"] = *restarts;
    if (const auto seconds = source_.TakeInteger(job_set + "ttlSecondsAfterFinished"))
      Spec()["lifecycle"]["ttlSecondsAfterFinished"] = *seconds;
    source_.Take(job_set + "network.publishNotReadyAddresses");  // as here
    // The launcher decides in each job of MPI.
    if (runtime_.framework == "mpi") source_.Take(job_set + "successPolicy");
  }

  std::string StepOf(const std::string& job) const {
    const api::Node* labels = source_.Find(job + ".template.metadata.labels");
    return labels == nullptr ? std::string() : TextOf(labels->Find(kStepLabel));
  }

  void ReplicatedJobs() {
    const std::string list = fmt::format("{}.replicatedJobs", kJobSet);
    const api::Node* jobs = source_.Find(list);
    const size_t count = jobs == nullptr ? 0 : jobs->items.size();
    const auto path_of = [&](size_t i) { return fmt::format("{}[{}]", list, i); };
    const auto name_of = [&](size_t i) { return TextOf(source_.Find(path_of(i) + ".name")); };
    const auto find = [&](const auto& matches) {
      size_t i = 0;
      while (i < count && !matches(i)) ++i;
      return i;
    };
    const bool mpi = runtime_.framework == "mpi";
    size_t trainer = find([&](size_t i) { return mpi && name_of(i) == kLauncher; });
    if (trainer == count) trainer = find([&](size_t i) { return StepOf(path_of(i)) == "trainer"; });
    const size_t node = find([&](size_t i) { return name_of(i) == kNode; });
    if (trainer == count) trainer = node;
    for (size_t i = 0; i < count; ++i) {
      if (i == trainer) {
        runtime_.trainer = Take(path_of(i));
      } else if (mpi && i == node) {
        runtime_.node = Take(path_of(i));
      } else {
        source_.Take(path_of(i));
        source_.Note(path_of(i), fmt::format("the replicated job {} was left out: do its work in an init "
                                             "container of spec.workers.template, or before the job starts",
                                             name_of(i)));
      }
    }
    if (trainer == count) source_.Refuse(list, "must have the job \"node\", which trains");
    if (trainer < count) PutNodeFirst(runtime_.trainer);
    if (runtime_.node) PutNodeFirst(*runtime_.node);
  }

  ReplicatedJob Take(const std::string& path) {
    ReplicatedJob job;
    job.name = source_.TakeText(path + ".name").value_or("");
    job.path = path + ".template.spec.template";
    // Kubeflow Trainer ignores or replaces the numbers, and the pods of a gang wait for each other.
    for (const char* field :
         {"replicas", "dependsOn", "template.metadata.labels", "template.spec.parallelism",
          "template.spec.completions", "template.spec.completionMode"})
      source_.Take(fmt::format("{}.{}", path, field));
    job.pod = source_.TakeObject(job.path).value_or(Json::object());
    return job;
  }

  // The container that trains must be the first one, or be named so.
  void PutNodeFirst(ReplicatedJob& job) {
    Json& pod = job.pod["spec"];
    const Json& containers = json::Items(pod, "containers");
    const bool objects = std::all_of(containers.begin(), containers.end(),
                                     [](const Json& container) { return container.is_object(); });
    if (containers.empty() || !objects)
      return source_.Refuse(job.path,
                            fmt::format("must have spec.containers with a container \"{}\"", kNode));
    Json& list = pod["containers"];
    const auto node = std::find_if(list.begin(), list.end(), [](const Json& container) {
      return json::Text(container, "name") == kNode;
    });
    if (node != list.end()) std::rotate(list.begin(), node, node + 1);
  }

  // JobSet creates a claim for each template, and mounts it in the pods.
  void Claims() {
    const std::string list = fmt::format("{}.volumeClaimPolicies", kJobSet);
    const api::Node* policies = source_.Find(list);
    for (size_t i = 0; policies != nullptr && i < policies->items.size(); ++i) {
      const std::string templates = fmt::format("{}[{}].templates", list, i);
      const api::Node* node = source_.Find(templates);
      for (size_t k = 0; node != nullptr && k < node->items.size(); ++k)
        Claim(fmt::format("{}[{}]", templates, k));
    }
  }

  void Claim(const std::string& path) {
    source_.Take(path);
    const std::string name = TextOf(source_.Find(path + ".metadata.name"));
    const std::string claim = fmt::format("{}-{}", name, json::Text(json::Child(job_, "metadata"), "name"));
    source_.Note(path,
                 fmt::format("create the PersistentVolumeClaim {} with this spec before the job starts: its "
                             "pods have the volume {}",
                             claim, name));
    const Json volume = {{"name", name}, {"persistentVolumeClaim", {{"claimName", claim}}}};
    for (ReplicatedJob* job : {&runtime_.trainer, runtime_.node ? &*runtime_.node : nullptr}) {
      if (job == nullptr) continue;
      Json& volumes = job->pod["spec"]["volumes"];
      if (!volumes.is_array()) volumes = Json::array();
      volumes.push_back(volume);
    }
  }

  Source& source_;
  Json& job_;
  TrainRuntime runtime_;
};

}  // namespace

std::optional<InstalledRuntime> FindInstalledRuntime(const std::string& name) {
  const auto* const found = std::find_if(kInstalled.begin(), kInstalled.end(),
                                         [&](const Installed& installed) { return installed.name == name; });
  if (found == kInstalled.end()) return std::nullopt;
  const bool mpi = found->policy == std::string("mpi");
  Json container = {{"name", kNode}, {"image", found->image}};
  if (mpi) container["securityContext"] = {{"runAsUser", 1000}};
  Json pod = {{"spec", {{"containers", Json::array({std::move(container)})}}}};
  if (mpi) pod["spec"]["securityContext"] = {{"fsGroup", 1000}};
  const auto job = [&](const char* job_name) -> Json {
    return {{"name", job_name}, {"template", {{"spec", {{"template", pod}}}}}};
  };
  Json jobs = Json::array({job(kNode)});
  if (mpi) jobs.push_back(job(kLauncher));
  Json policy = Json::object();
  if (mpi) policy["runLauncherAsNode"] = true;
  InstalledRuntime runtime;
  runtime.image = found->image;
  runtime.manifest["spec"]["mlPolicy"][found->policy] = std::move(policy);
  runtime.manifest["spec"]["template"]["spec"]["replicatedJobs"] = std::move(jobs);
  return runtime;
}

TrainRuntime ReadRuntime(Source& source, Json& job) { return RuntimeReader(source, job).Read(); }

std::string RemedyOfRuntime(const std::string& path) {
  if (path.ends_with(".sshAuthMountPath")) return "the agents take the place of SSH";
  if (path.find(".envInjection") != path.npos)
    return "the agent sets the variables of torchrun for the command of the container that trains only";
  if (path.ends_with(".failurePolicy.rules")) return "write spec.restart.rules";
  if (path.ends_with(".backoffLimit")) return "spec.restart.maxRestarts limits the restarts of all pods";
  if (path.ends_with(".successPolicy")) return "spec.lifecycle.success decides";
  if (path.ends_with(".startupPolicy")) return "all pods start together";
  return {};
}

}  // namespace ringmaster::cli::convert
