// SPDX-License-Identifier: Apache-2.0

// TrainJob: a runtime, the trainer's settings on top of it, and patches on top of both.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "api/pod_template.h"
#include "api/slots.h"
#include "base/check.h"
#include "cli/convert/convert.h"
#include "cli/convert/torchrun.h"
#include "cli/convert/train_runtime.h"
#include "operator/wiring/merge.h"

namespace ringmaster::cli::convert {
namespace {

constexpr const char* kVolcanoQueue = "scheduling.volcano.sh/queue-name";

Json& NodeContainer(ReplicatedJob& job) { return job.pod["spec"]["containers"].front(); }

std::vector<std::string> Words(const Json& container) {
  std::vector<std::string> words;
  for (const char* member : {"command", "args"}) {
    for (const Json& word : json::Items(container, member)) {
      if (word.is_string()) words.push_back(word.get<std::string>());
    }
  }
  return words;
}

// Returns a quantity such as 4, "1500m" or "2.5", rounded up; 0: there is none.
int64_t WholeCpus(const Json& quantity) {
  constexpr double kMost = 1e6;
  double value = quantity.is_number() ? quantity.get<double>() : 0;
  if (quantity.is_string()) {
    const std::string& text = quantity.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return 0;
    if (std::string_view(end) == "m") value /= 1000;
  }
  return value > 0 && value < kMost ? static_cast<int64_t>(std::ceil(value)) : 0;
}

// As Kubeflow Trainer counts the processes of a pod without GPUs.
int64_t CpusOf(const Json& container) {
  const Json& resources = json::Child(container, "resources");
  const int64_t requested = WholeCpus(json::Child(json::Child(resources, "requests"), "cpu"));
  const int64_t limit = WholeCpus(json::Child(json::Child(resources, "limits"), "cpu"));
  return std::max<int64_t>(1, requested > 0 ? requested : limit);
}

class TrainJob {
 public:
  TrainJob(Source& source, Json& job) : source_(source), job_(job) {}

  // REQUIRES: the source has its runtime.
  void Convert() {
    runtime_ = ReadRuntime(source_, job_);
    if (source_.refused()) return;
    Trainer();
    Patches();
    Overrides();
    Rest();
    if (source_.refused()) return;
    if (runtime_.framework == "mpi") return Mpi();
    CountProcesses();
    UseTemplate(source_, {runtime_.trainer.path, kNode, "spec.trainer"}, std::move(runtime_.trainer.pod),
                runtime_.processes, runtime_.processes_path, job_);
    if (runtime_.framework == "custom" && !Spec().contains("launch")) {
      source_.Note(
          "spec.runtimeRef",
          "the runtime has no framework, so that of the job is custom: its programs read RINGMASTER_RANK "
          "and RINGMASTER_WORLD_SIZE in place of JOB_COMPLETION_INDEX");
    }
  }

 private:
  Json& Spec() { return job_["spec"]; }

  void Trainer() {
    const std::string trainer = "spec.trainer.";
    Json& container = NodeContainer(runtime_.trainer);
    const bool launches = runtime_.node.has_value();
    if (auto image = source_.TakeText(trainer + "image")) {
      // Ranks in other pods need the same program.
      if (launches) NodeContainer(*runtime_.node)["image"] = *image;
      container["image"] = std::move(*image);
    }
    for (const char* field : {"command", "args"}) {
      if (const api::Node* node = source_.Take(trainer + field)) container[field] = NodeToJson(*node);
    }
    if (source_.Find(trainer + "command") != nullptr && container["command"] == Json::array({"tune", "run"}))
      source_.Refuse(trainer + "command",
                     "Kubeflow Trainer completes `tune run` with a recipe and its settings: write them here");
    if (const auto resources = source_.TakeObject(trainer + "resourcesPerNode")) {
      const Json change = {{"resources", *resources}};
      if (launches)
        NodeContainer(*runtime_.node) = wiring::StrategicMerge(NodeContainer(*runtime_.node), change);
      if (!launches || runtime_.launcher_works) container = wiring::StrategicMerge(container, change);
    }
    if (const api::Node* node = source_.Take(trainer + "env")) {
      const Json change = {{"env", NodeToJson(*node)}};
      container = wiring::StrategicMerge(container, change);
      if (launches && runtime_.launcher_works)
        NodeContainer(*runtime_.node) = wiring::StrategicMerge(NodeContainer(*runtime_.node), change);
    }
    Spec()["workers"]["replicas"] = source_.TakeInteger(trainer + "numNodes").value_or(runtime_.nodes);
    Processes(trainer + "numProcPerNode");
  }

  // Other policies than torch and mpi ignore it.
  void Processes(const std::string& path) {
    if (runtime_.framework != "pytorch" && runtime_.framework != "mpi") return;
    if (runtime_.processes_path.empty()) runtime_.processes_path = path;
    const api::Node* node = source_.Take(path);
    if (node == nullptr) return;
    processes_given_ = true;
    runtime_.processes = node->scalar.is_string() ? node->scalar.get<std::string>() : DumpJson(node->scalar);
    runtime_.processes_path = path;
  }

  // torchrun gets a number in pods without GPUs.
  void CountProcesses() {
    if (runtime_.framework != "pytorch" || !(runtime_.processes.empty() || runtime_.processes == "auto"))
      return;
    const Json* container = api::TrainingContainer(runtime_.trainer.pod);
    if (container == nullptr) return;
    const Torchrun torchrun = ReadTorchrun(Words(*container));
    api::Workers workers;
    workers.template_ = runtime_.trainer.pod;
    if ((torchrun.found || torchrun.in_shell) && !api::RequestsGpus(workers))
      runtime_.processes = std::to_string(CpusOf(*container));
  }

  void Mpi() {
    ReplicatedJob& worker = runtime_.node ? *runtime_.node : runtime_.trainer;
    api::Workers workers;
    workers.template_ = worker.pod;
    workers.slots = runtime_.processes.empty() ? "1" : runtime_.processes;
    // One process per node in a runtime means one for each GPU.
    if (workers.slots == "1" && !processes_given_) workers.slots = "gpu";
    const int64_t slots = api::SlotsOf(workers);
    if (slots != 1) Spec()["workers"]["slots"] = workers.slots;
    const int64_t replicas = json::Integer(Spec()["workers"], "replicas");
    Spec()["launch"]["mpi"] = runtime_.mpi;
    const bool apart = runtime_.node && !runtime_.launcher_works;
    ConvertMpiPods(source_,
                   {runtime_.trainer.pod, runtime_.trainer.path, worker.pod, worker.path, replicas, slots,
                    apart, "spec.trainer"},
                   job_);
    if (replicas == 1 && runtime_.node && runtime_.launcher_works && !source_.refused())
      source_.Note("spec.trainer.numNodes",
                   "one worker starts; Kubeflow Trainer starts two pods, the launcher and one more node");
  }

  // Merges a change of the pods of one replicated job. Returns false when these pods do not remain.
  bool Change(std::string_view name, const Json& change) {
    for (ReplicatedJob* job : {&runtime_.trainer, runtime_.node ? &*runtime_.node : nullptr}) {
      if (job == nullptr || job->name != name) continue;
      job->pod = wiring::StrategicMerge(std::move(job->pod), change);
      return true;
    }
    return false;
  }

  bool Remains(std::string_view name) const {
    return name == runtime_.trainer.name || (runtime_.node && name == runtime_.node->name);
  }

  void Patches() {
    const api::Node* patches = source_.Find("spec.runtimePatches");
    for (size_t i = 0; patches != nullptr && i < patches->items.size(); ++i) {
      const std::string patch = fmt::format("spec.runtimePatches[{}]", i);
      source_.Take(patch + ".manager");
      source_.Take(patch + ".time");
      const std::string job_set = patch + ".trainingRuntimeSpec.template";
      AddMetadata(job_set + ".metadata.");
      const std::string jobs = job_set + ".spec.replicatedJobs";
      const api::Node* list = source_.Find(jobs);
      for (size_t k = 0; list != nullptr && k < list->items.size(); ++k) {
        const std::string job = fmt::format("{}[{}]", jobs, k);
        const api::Node* name = source_.Find(job + ".name");
        if (name == nullptr || !name->scalar.is_string() || !Remains(name->scalar.get<std::string>()))
          continue;
        source_.Take(job + ".name");
        if (const auto change = source_.TakeObject(job + ".template.spec.template"))
          Change(name->scalar.get<std::string>(), *change);
      }
    }
  }

  // What releases before 2.2 have in place of runtimePatches.
  void Overrides() {
    AddMetadata("spec.");
    const api::Node* overrides = source_.Find("spec.podTemplateOverrides");
    for (size_t i = 0; overrides != nullptr && i < overrides->items.size(); ++i) {
      const std::string path = fmt::format("spec.podTemplateOverrides[{}]", i);
      Json change = Json::object();
      for (const char* field : {"metadata", "spec"}) {
        if (auto value = source_.TakeObject(fmt::format("{}.{}", path, field)))
          change[field] = std::move(*value);
      }
      const api::Node* targets = source_.Find(path + ".targetJobs");
      for (size_t k = 0; targets != nullptr && k < targets->items.size(); ++k) {
        const std::string target = fmt::format("{}.targetJobs[{}]", path, k);
        const auto name = source_.TakeText(target + ".name");
        if (name && !Change(*name, change))
          source_.Note(target, "was left out: only the pods that train remain");
      }
    }
  }

  void AddMetadata(const std::string& path) {
    for (const char* field : {"labels", "annotations"}) {
      if (const auto values = source_.TakeObject(path + field); values && !values->empty())
        job_["metadata"][field].update(*values);
    }
  }

  void VolcanoQueue() {
    Json& metadata = job_["metadata"];
    const std::string queue(json::Text(json::Child(metadata, "annotations"), kVolcanoQueue));
    if (queue.empty()) return;
    Spec()["scheduling"]["queue"] = queue;
    metadata["annotations"].erase(kVolcanoQueue);
    if (metadata["annotations"].empty()) metadata.erase("annotations");
  }

  void Rest() {
    if (json::Text(json::Child(Spec(), "scheduling"), "gang") == "volcano") VolcanoQueue();
    if (const auto suspend = source_.TakeFlag("spec.suspend")) Spec()["suspend"] = *suspend;
    if (const auto seconds = source_.TakeInteger("spec.activeDeadlineSeconds"))
      Spec()["lifecycle"]["activeDeadlineSeconds"] = *seconds;
    if (auto manager = source_.TakeText("spec.managedBy");
        manager && *manager != "trainer.kubeflow.org/trainjob-controller")
      Spec()["managedBy"] = std::move(*manager);
  }

  Source& source_;
  Json& job_;
  TrainRuntime runtime_;
  bool processes_given_ = false;  // by the TrainJob
};

std::string RemedyOfTrainJob(const std::string& path) {
  if (path.starts_with("runtime.")) return RemedyOfRuntime(path);
  if (path.starts_with("spec.initializer"))
    return "download in an init container of spec.workers.template, or before the job starts";
  if (path.starts_with("spec.runtimePatches")) return "only the pods that train remain";
  if (path == "spec.trainer.numProcPerNode")
    return "the policy of the runtime starts one process in each pod";
  if (path.starts_with("spec.podSpecOverrides")) return "write the change into spec.workers.template";
  return {};
}

// Returns null when no runtime of the input has the name.
const api::Node* FindRuntime(const std::vector<const api::Node*>& runtimes, const std::string& kind,
                             const std::string& name) {
  for (const api::Node* runtime : runtimes) {
    const api::Node* metadata = runtime->Find("metadata");
    const api::Node* of_kind = runtime->Find("kind");
    const api::Node* named = metadata == nullptr ? nullptr : metadata->Find("name");
    if (of_kind != nullptr && of_kind->scalar == kind && named != nullptr && named->scalar == name)
      return runtime;
  }
  return nullptr;
}

}  // namespace

void ConvertTrainJob(Source& source, const std::vector<const api::Node*>& runtimes, Json& job) {
  ConvertMetadata(source, job);
  const std::string reference = "spec.runtimeRef";
  source.Take(reference + ".apiGroup");
  const std::string kind = source.TakeText(reference + ".kind").value_or("ClusterTrainingRuntime");
  const std::string name = source.TakeText(reference + ".name").value_or("");
  api::Node installed;
  std::string image;
  if (const api::Node* runtime = FindRuntime(runtimes, kind, name)) {
    source.AddRuntime(*runtime, reference);
  } else {
    auto known = kind == "ClusterTrainingRuntime" ? FindInstalledRuntime(name) : std::nullopt;
    if (!known)
      return source.Refuse(
          reference, fmt::format("the {} \"{}\" is not known: add its manifest to this input", kind, name));
    auto node = api::NodeFromJson(known->manifest);
    CHECK(node.ok(), "{}", node.error().message);
    installed = std::move(*node);
    image = std::move(known->image);
    source.AddRuntime(installed, reference);
  }
  TrainJob(source, job).Convert();
  if (source.refused()) return;
  if (!image.empty() && source.Find("spec.trainer.image") == nullptr)
    source.Note(reference,
                fmt::format("the runtime is not in this input, so the image is that of Kubeflow Trainer "
                            "{}: {}",
                            kTrainerRelease, image));
  source.NoteUnused(RemedyOfTrainJob);
}

}  // namespace ringmaster::cli::convert
