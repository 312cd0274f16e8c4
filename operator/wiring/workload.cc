// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/workload.h"

#include <span>
#include <utility>

#include "base/hash.h"
#include "operator/core/model.h"
#include "operator/wiring/names.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

uint64_t HashOf(const std::string& text) { return Hash64(AsBytes(std::span<const char>(text))); }

// Copies the members of `from` that exist.
Json Only(const Json& from, std::initializer_list<const char*> members) {
  Json kept = Json::object();
  for (const char* member : members)
    if (const Json* value = Find(from, {member}); value != nullptr && !value->empty()) kept[member] = *value;
  return kept;
}

Json TemplateOf(const api::TrainingJob& job, const std::string& job_uid, int32_t rank) {
  Context context;
  context.gang = Gang::kNone;
  const Json pod = PodOf(job, job_uid, rank, context);
  Json spec = Only(pod["spec"], {"nodeSelector", "affinity", "tolerations", "priorityClassName",
                                 "runtimeClassName", "overhead", "resources", "resourceClaims"});
  for (const char* list : {"containers", "initContainers"}) {
    const Json* containers = Find(pod, {"spec", list});
    if (containers == nullptr || containers->empty()) continue;
    spec[list] = Json::array();
    for (const Json& container : *containers)
      spec[list].push_back(Only(container, {"name", "image", "resources", "restartPolicy"}));
  }
  return {{"spec", std::move(spec)}};
}

int32_t RankOf(const api::TrainingJob& job, const std::string& set) {
  if (set == core::kMasterSet) return 0;
  if (set == core::kWorkerSet) return api::FindRole(job.spec, api::kMaster) != nullptr ? 1 : 0;
  return core::RankInRole(set, 0);
}

}  // namespace

std::string WorkloadName(const std::string& job, const std::string& job_uid) {
  return job + "-" + HashHex(HashOf(job_uid)).substr(0, 5);
}

Json WorkloadOf(const api::TrainingJob& job, const std::string& job_uid, const WorkloadInputs& inputs) {
  Json workload =
      NewObject(kWorkloadVersion, "Workload", WorkloadName(job.metadata.name, job_uid), job, job_uid);
  Json& metadata = workload["metadata"];
  metadata["labels"]["kueue.x-k8s.io/job-uid"] = job_uid;
  metadata["finalizers"] = Json::array({kWorkloadFinalizer});
  Json sets = Json::array();
  for (const core::PodSet& set : inputs.pod_sets) {
    Json entry = {{"name", set.name},
                  {"count", set.count},
                  {"template", TemplateOf(job, job_uid, RankOf(job, set.name))}};
    if (set.min > 0) entry["minCount"] = set.min;
    sets.push_back(std::move(entry));
  }
  Json spec = {{"queueName", inputs.queue}, {"podSets", std::move(sets)}, {"priority", inputs.priority}};
  if (!inputs.class_name.empty())
    spec["priorityClassRef"] = {
        {"group", inputs.class_group}, {"kind", inputs.class_kind}, {"name", inputs.class_name}};
  workload["spec"] = std::move(spec);
  metadata["annotations"] = {{kRenderedAnnotation, RenderedText(workload)}};
  return workload;
}

std::string RenderedText(const Json& workload) {
  Json spec = workload["spec"];
  spec.erase("queueName");
  for (Json& set : spec["podSets"]) {
    set.erase("count");
    set.erase("minCount");
  }
  return HashHex(HashOf(DumpJson(spec)));
}

void Admit(const Admission& admission, Json& pod) {
  Json& metadata = ObjectIn(pod, "metadata");
  for (const auto& [member, values] :
       {std::pair("labels", &admission.labels), std::pair("annotations", &admission.annotations)})
    for (const auto& [key, value] : *values) ObjectIn(metadata, member)[key] = value;
  Json& spec = ObjectIn(pod, "spec");
  for (const auto& [key, value] : admission.node_selector) ObjectIn(spec, "nodeSelector")[key] = value;
  for (const Json& toleration : admission.tolerations) AddOnce(ListIn(spec, "tolerations"), toleration);
}

}  // namespace ringmaster::wiring
