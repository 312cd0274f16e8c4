// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/load.h"
#include "api/yaml.h"

namespace ringmaster::cli::convert {
namespace {

constexpr const char* kTrainer = "trainer.kubeflow.org/v1alpha1";

std::string TextOf(const api::Node& root, const char* field) {
  const api::Node* node = root.Find(field);
  return node != nullptr && node->scalar.is_string() ? node->scalar.get<std::string>() : std::string();
}

bool IsRuntime(const api::Node& root) {
  const std::string kind = TextOf(root, "kind");
  return TextOf(root, "apiVersion") == kTrainer &&
         (kind == "TrainingRuntime" || kind == "ClusterTrainingRuntime");
}

Converted FromProblems(const std::vector<api::Problem>& problems) {
  Converted result;
  result.name = "the manifest";
  for (const api::Problem& problem : problems)
    result.remarks.push_back({problem.path, problem.message, true, {problem.line, problem.column}});
  return result;
}

// Returns the documents of the text, with the items of each List as documents.
std::vector<api::Parsed> Objects(std::string_view text) {
  std::vector<api::Parsed> objects;
  for (api::Parsed& document : api::ParseYamlDocuments(text)) {
    api::Node* items = TextOf(document.root, "kind") == "List" ? document.root.Find("items") : nullptr;
    if (items == nullptr || !document.problems.empty()) {
      objects.push_back(std::move(document));
      continue;
    }
    for (api::Node& item : items->items) objects.push_back({std::move(item), {}, true});
  }
  return objects;
}

// Why a document of another kind is not converted.
Remark OtherKind(const std::string& api_version, const std::string& kind, api::Mark mark) {
  if (api_version.find("kubeflow.org/") != api_version.npos) {
    return {"kind",
            fmt::format(
                "{} of {} is not supported: give a PyTorchJob, TFJob, JAXJob or MPIJob of kubeflow.org/v1, "
                "an MPIJob of kubeflow.org/v2beta1, or a TrainJob of {}",
                kind, api_version, kTrainer),
            true, mark};
  }
  if (api_version.starts_with("batch.volcano.sh/") || api_version.starts_with("jobset.x-k8s.io/")) {
    return {"kind",
            fmt::format("{} of {} does not say which framework it runs, so it is not converted: write a "
                        "TrainingJob with its "
                        "pod template as spec.workers.template{}",
                        kind, api_version,
                        api_version.starts_with("batch.volcano.sh/")
                            ? ", spec.scheduling.gang: volcano, and its queue as spec.scheduling.queue; the "
                              "agents take the "
                              "place of the plugins ssh, svc, env, pytorch, mpi and tensorflow"
                            : ""),
            true, mark};
  }
  return {
      "kind",
      fmt::format("{} is no training job: apply it as it is", kind.empty() ? "an object without kind" : kind),
      false, mark};
}

// The converted job must be one that `ringmaster validate` accepts.
void CheckResult(Source& source, const Json& job) {
  for (const api::Problem& problem : api::FromJson(job).problems) {
    const bool same = problem.path.starts_with("metadata");
    source.Refuse(
        same ? problem.path : std::string("spec"),
        same ? problem.message
             : fmt::format("the TrainingJob would be invalid: {}: {}", problem.path, problem.message));
  }
}

Converted Convert(const api::Node& root, const std::vector<const api::Node*>& runtimes) {
  const std::string api_version = TextOf(root, "apiVersion"), kind = TextOf(root, "kind");
  Converted result;
  const api::Node* metadata = root.Find("metadata");
  result.name = kind.empty() ? "object" : kind;
  const std::string name = metadata == nullptr ? std::string() : TextOf(*metadata, "name");
  if (!name.empty()) result.name += " " + name;
  const bool replicas = IsReplicaJob(api_version, kind);
  if (!replicas && (api_version != kTrainer || kind != "TrainJob")) {
    result.remarks.push_back(OtherKind(api_version, kind, root.mark));
    return result;
  }
  Source source(root);
  for (const char* field : {"apiVersion", "kind", "status"}) source.Take(field);
  Json job = {{"apiVersion", "ringmaster.dev/v1alpha1"}, {"kind", "TrainingJob"}};
  if (replicas) {
    ConvertReplicaJob(source, api_version, kind, job);
  } else {
    ConvertTrainJob(source, runtimes, job);
  }
  if (!source.refused()) CheckResult(source, job);
  if (!source.refused()) result.job = std::move(job);
  result.remarks = source.remarks();
  std::stable_sort(result.remarks.begin(), result.remarks.end(), [](const Remark& a, const Remark& b) {
    return std::pair(a.mark.line, a.mark.column) < std::pair(b.mark.line, b.mark.column);
  });
  return result;
}

}  // namespace

void ConvertMetadata(Source& source, Json& job) {
  Json& metadata = job["metadata"] = Json::object();
  for (const char* field : {"name", "namespace"}) {
    if (auto text = source.TakeText(fmt::format("metadata.{}", field))) metadata[field] = std::move(*text);
  }
  const std::string generated = "metadata.generateName";
  if (auto prefix = source.TakeText(generated); prefix && !metadata.contains("name")) {
    metadata["name"] = prefix->substr(0, prefix->find_last_not_of("-.") + 1);
    source.Note(
        generated,
        fmt::format("the job is named {}: the name is that of its pods and its checkpoints, so a second "
                    "job needs another metadata.name",
                    metadata["name"].get<std::string>()));
  }
  for (const char* field : {"labels", "annotations"}) {
    if (auto map = source.TakeObject(fmt::format("metadata.{}", field)); map && !map->empty())
      metadata[field] = std::move(*map);
  }
  if (metadata.contains("labels") && metadata["labels"].contains("kueue.x-k8s.io/queue-name")) {
    source.Note("metadata.labels",
                "Kueue admits the TrainingJob by its label; remove spec.suspend if Kueue has set it");
  }
  if (metadata.contains("annotations")) {
    metadata["annotations"].erase("kubectl.kubernetes.io/last-applied-configuration");
    if (metadata["annotations"].empty()) metadata.erase("annotations");
  }
  // The API server sets these for each object.
  for (const char* field :
       {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"})
    source.Take(fmt::format("metadata.{}", field));
}

std::vector<Converted> ConvertManifests(std::string_view text) {
  const std::vector<api::Parsed> documents = Objects(text);
  std::vector<Converted> results;
  std::vector<const api::Node*> runtimes;
  for (const api::Parsed& document : documents) {
    if (document.whole && IsRuntime(document.root)) runtimes.push_back(&document.root);
  }
  for (const api::Parsed& document : documents) {
    if (!document.problems.empty()) {
      results.push_back(FromProblems(document.problems));
    } else if (!IsRuntime(document.root)) {
      results.push_back(Convert(document.root, runtimes));
    }
  }
  return results;
}

}  // namespace ringmaster::cli::convert
