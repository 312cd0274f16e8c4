// SPDX-License-Identifier: Apache-2.0

// TrainJob: a runtime, the trainer's settings on top of it, and patches on top of both.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/convert/convert.h"
#include "operator/wiring/merge.h"

namespace ringmaster::cli::convert {
namespace {

// The runtimes that Kubeflow Trainer installs and that a TrainingJob can replace.
struct KnownRuntime {
  const char* name;
  const char* policy;  // the member of mlPolicy
  const char* image;   // in release 2.3
};
constexpr std::array<KnownRuntime, 2> kKnown = {{
    {"torch-distributed", "torch", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"},
    {"jax-distributed", "jax", "nvcr.io/nvidia/jax:25.10-py3"},
}};
constexpr const char* kNode = "node";  // the replicated job, and its container, that train
constexpr const char* kStepLabel = "trainer.kubeflow.org/trainjob-ancestor-step";

Json RuntimeOf(const KnownRuntime& known) {
  const Json container = {{"name", kNode}, {"image", known.image}};
  const Json pod = {{"spec", {{"containers", Json::array({container})}}}};
  const Json node = {{"name", kNode}, {"template", {{"spec", {{"template", pod}}}}}};
  return {{"spec",
           {{"mlPolicy", {{"numNodes", 1}, {known.policy, Json::object()}}},
            {"template", {{"spec", {{"replicatedJobs", Json::array({node})}}}}}}}};
}

class TrainJob {
 public:
  TrainJob(Source& source, const std::vector<Json>& runtimes, Json& job)
      : source_(source), runtimes_(runtimes), job_(job) {}

  void Convert() {
    ConvertMetadata(source_, job_);
    const Json runtime = Runtime();
    if (runtime.is_null()) return;
    const Json& spec = json::Child(runtime, "spec");
    Framework(json::Child(spec, "mlPolicy"));
    GangScheduler(json::Child(spec, "podGroupPolicy"));
    Json pod = NodeTemplate(json::Child(json::Child(spec, "template"), "spec"));
    if (source_.refused()) return;
    Trainer(pod);
    Patches(pod);
    Rest();
    if (source_.refused()) return;
    UseTemplate(source_, {"spec.trainer", kNode, "spec.trainer"}, std::move(pod), processes_,
                "spec.trainer.numProcPerNode", job_);
  }

 private:
  Json& Spec() { return job_["spec"]; }

  Json Runtime() {
    const std::string path = "spec.runtimeRef";
    source_.Take(path + ".apiGroup");
    const std::string kind = source_.TakeText(path + ".kind").value_or("ClusterTrainingRuntime");
    const std::string name = source_.TakeText(path + ".name").value_or("");
    for (const Json& runtime : runtimes_) {
      if (json::Text(runtime, "kind") == kind && json::Text(json::Child(runtime, "metadata"), "name") == name)
        return runtime;
    }
    for (const KnownRuntime& known : kKnown) {
      if (kind != "ClusterTrainingRuntime" || name != known.name) continue;
      if (source_.Find("spec.trainer.image") == nullptr) {
        source_.Note(path,
                     fmt::format("the runtime is not in this input, so the image is that of Kubeflow Trainer "
                                 "2.3: {}",
                                 known.image));
      }
      return RuntimeOf(known);
    }
    source_.Refuse(path,
                   fmt::format("the {} \"{}\" is not known: add its manifest to this input", kind, name));
    return nullptr;
  }

  void Framework(const Json& policy) {
    if (policy.contains("torch")) {
      Spec()["framework"] = "pytorch";
    } else if (policy.contains("jax")) {
      Spec()["framework"] = "jax";
    } else {
      std::string found = "nothing";
      for (const auto& [key, value] : policy.items()) {
        if (key != "numNodes") found = key;
      }
      source_.Refuse("spec.runtimeRef",
                     fmt::format("the mlPolicy of the runtime must have torch or jax (got {}): a "
                                 "TrainingJob does not start ranks by a launcher such as mpirun",
                                 found));
    }
    Spec()["workers"]["replicas"] = json::Integer(policy, "numNodes", 1);
    const Json& processes = json::Child(json::Child(policy, "torch"), "numProcPerNode");
    if (processes.is_string()) processes_ = processes.get<std::string>();
    if (processes.is_number_integer()) processes_ = std::to_string(processes.get<int64_t>());
  }

  void GangScheduler(const Json& policy) {
    if (policy.contains("volcano")) Spec()["scheduling"]["gang"] = "volcano";
    if (!policy.contains("coscheduling")) return;
    Spec()["scheduling"]["gang"] = "coscheduling";
    const int64_t seconds = json::Integer(json::Child(policy, "coscheduling"), "scheduleTimeoutSeconds");
    if (seconds > 0) Spec()["scheduling"]["timeoutSeconds"] = seconds;
  }

  Json NodeTemplate(const Json& job_set) {
    Json pod;
    for (const Json& job : json::Items(job_set, "replicatedJobs")) {
      const Json& job_template = json::Child(job, "template");
      const auto step = json::Text(json::Child(json::Child(job_template, "metadata"), "labels"), kStepLabel);
      if (json::Text(job, "name") == kNode || step == "trainer") {
        pod = json::Child(json::Child(job_template, "spec"), "template");
      } else {
        source_.Note(
            "spec.runtimeRef",
            fmt::format("the replicated job {} of the runtime was left out: do its work in an init container "
                        "of spec.workers.template, or before the job starts",
                        json::Text(job, "name")));
      }
    }
    const Json& containers = json::Items(json::Child(pod, "spec"), "containers");
    const bool objects = std::all_of(containers.begin(), containers.end(),
                                     [](const Json& container) { return container.is_object(); });
    if (containers.empty() || !objects)
      source_.Refuse("spec.runtimeRef", "the runtime has no replicated job \"node\" with a container");
    return pod;
  }

  static Json& NodeContainer(Json& pod) {
    Json& containers = pod["spec"]["containers"];
    for (Json& container : containers) {
      if (json::Text(container, "name") == kNode) return container;
    }
    return containers.front();
  }

  void Trainer(Json& pod) {
    const std::string trainer = "spec.trainer.";
    Json& container = NodeContainer(pod);
    if (auto image = source_.TakeText(trainer + "image")) container["image"] = std::move(*image);
    for (const char* field : {"command", "args"}) {
      if (const api::Node* node = source_.Take(trainer + field)) container[field] = NodeToJson(*node);
    }
    if (auto resources = source_.TakeObject(trainer + "resourcesPerNode"))
      container["resources"] = std::move(*resources);
    if (const api::Node* node = source_.Take(trainer + "env"))
      container = wiring::StrategicMerge(container, {{"env", NodeToJson(*node)}});
    if (const auto nodes = source_.TakeInteger(trainer + "numNodes")) Spec()["workers"]["replicas"] = *nodes;
    if (const auto processes = source_.TakeInteger(trainer + "numProcPerNode"))
      processes_ = std::to_string(*processes);
  }

  void Patches(Json& pod) {
    const api::Node* patches = source_.Find("spec.runtimePatches");
    for (size_t i = 0; patches != nullptr && i < patches->items.size(); ++i) {
      const std::string patch = fmt::format("spec.runtimePatches[{}]", i);
      source_.Take(patch + ".manager");
      source_.Take(patch + ".time");
      const std::string job_set = patch + ".trainingRuntimeSpec.template";
      for (const char* field : {"labels", "annotations"}) {
        const std::string path = fmt::format("{}.metadata.{}", job_set, field);
        if (auto values = source_.TakeObject(path)) job_["metadata"][field].update(*values);
      }
      const std::string jobs = job_set + ".spec.replicatedJobs";
      const api::Node* list = source_.Find(jobs);
      for (size_t k = 0; list != nullptr && k < list->items.size(); ++k) {
        const std::string job = fmt::format("{}[{}]", jobs, k);
        const api::Node* name = source_.Find(job + ".name");
        if (name == nullptr || name->scalar != kNode) continue;
        source_.Take(job + ".name");
        if (auto change = source_.TakeObject(job + ".template.spec.template"))
          pod = wiring::StrategicMerge(std::move(pod), *change);
      }
    }
  }

  void Rest() {
    if (const auto suspend = source_.TakeFlag("spec.suspend")) Spec()["suspend"] = *suspend;
    if (const auto seconds = source_.TakeInteger("spec.activeDeadlineSeconds"))
      Spec()["lifecycle"]["activeDeadlineSeconds"] = *seconds;
    if (auto manager = source_.TakeText("spec.managedBy");
        manager && *manager != "trainer.kubeflow.org/trainjob-controller")
      Spec()["managedBy"] = std::move(*manager);
  }

  Source& source_;
  const std::vector<Json>& runtimes_;
  Json& job_;
  std::string processes_;
};

std::string RemedyOfTrainJob(const std::string& path) {
  if (path.starts_with("spec.initializer"))
    return "download in an init container of spec.workers.template, or before the job starts";
  if (path.starts_with("spec.runtimePatches")) return "only pods of the replicated job \"node\" remain";
  return {};
}

}  // namespace

void ConvertTrainJob(Source& source, const std::vector<Json>& runtimes, Json& job) {
  TrainJob(source, runtimes, job).Convert();
  if (!source.refused()) source.NoteUnused(RemedyOfTrainJob);
}

}  // namespace ringmaster::cli::convert
