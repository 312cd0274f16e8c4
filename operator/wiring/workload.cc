// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/workload.h"

#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "api/launch.h"
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

// The annotations of a template by which Kueue's users ask for a topology, and the fields of a pod set's
// request.
constexpr std::pair<const char*, const char*> kTopologyAnnotations[] = {
    {"kueue.x-k8s.io/podset-required-topology", "required"},
    {"kueue.x-k8s.io/podset-preferred-topology", "preferred"},
    {"kueue.x-k8s.io/podset-unconstrained-topology", "unconstrained"},
    {"kueue.x-k8s.io/podset-slice-required-topology", "podSetSliceRequiredTopology"},
    {"kueue.x-k8s.io/podset-slice-size", "podSetSliceSize"},
    {"kueue.x-k8s.io/podset-group-name", "podSetGroupName"},
};
constexpr const char* kUnconstrained = kTopologyAnnotations[2].first;

constexpr std::string_view kAdmissionGates = "kueue.x-k8s.io/admission-gated-by";
constexpr std::string_view kProvisioningPrefix = "provreq.kueue.x-k8s.io/";

// The image of containers that get the operator's. Kueue's admission checks make PodTemplates of a Workload,
// and the API server refuses one without an image; the name of the real one would change with the operator.
constexpr const char* kWorkerImage = "ringmaster-worker";

// Returns what the pods' annotations ask Kueue for; null: nothing. A value that is no number or no truth
// value is passed as it is: the API server refuses the Workload, and its message reaches the user.
Json TopologyRequestOf(const Json& pod) {
  const Json* annotations = Find(pod, {"metadata", "annotations"});
  Json request;
  if (annotations == nullptr) return request;
  for (const auto& [annotation, field] : kTopologyAnnotations) {
    const auto found = annotations->find(annotation);
    if (found == annotations->end() || !found->is_string()) continue;
    const auto& text = found->get_ref<const std::string&>();
    int32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text == "true" || text == "false")
      request[field] = text == "true";
    else if (field == std::string_view("podSetSliceSize") && error == std::errc() &&
             end == text.data() + text.size())
      request[field] = number;
    else
      request[field] = text;
  }
  if (!request.is_null()) request["podIndexLabel"] = kRankLabel;
  return request;
}

Json TemplateOf(const Json& pod) {
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

// 0: the text is no positive number.
int32_t PositiveNumber(std::string_view text) {
  int32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && number > 0 ? number : 0;
}

}  // namespace

bool IsPassedOn(std::string_view annotation) {
  return annotation == kAdmissionGates || annotation.starts_with(kProvisioningPrefix);
}

std::optional<int32_t> MaximumSeconds(std::string_view label) {
  const int32_t number = PositiveNumber(label);
  return number > 0 ? std::optional(number) : std::nullopt;
}

int32_t SurplusNumber(std::string_view annotation) { return PositiveNumber(annotation); }

// No name of a slice has a slash.
std::string SurplusPart(int32_t number) { return "surplus/" + std::to_string(number); }

std::string WorkloadName(const std::string& job, const std::string& job_uid, const std::string& part) {
  const std::string identity = part.empty() ? job_uid : job_uid + "/" + part;
  return job + "-" + HashHex(HashOf(identity)).substr(0, 5);
}

Json WorkloadOf(const api::TrainingJob& job, const std::string& job_uid, const WorkloadInputs& inputs) {
  const std::string name = WorkloadName(job.metadata.name, job_uid,
                                        inputs.surplus > 0 ? SurplusPart(inputs.surplus) : inputs.replaces);
  Json workload = NewObject(kWorkloadVersion, "Workload", name, job, job_uid);
  Json& metadata = workload["metadata"];
  metadata["labels"]["kueue.x-k8s.io/job-uid"] = job_uid;
  metadata["finalizers"] = Json::array({kWorkloadFinalizer});
  Json sets = Json::array();
  for (const core::PodSet& set : inputs.pod_sets) {
    Context context;
    context.gang = Gang::kNone;
    context.worker_image = kWorkerImage;
    const Json pod = PodOf(job, job_uid, RankOf(job, set.name), context);
    Json entry = {{"name", set.name}, {"count", set.count}, {"template", TemplateOf(pod)}};
    if (set.min > 0) entry["minCount"] = set.min;
    if (Json request = TopologyRequestOf(pod); !request.is_null())
      entry["topologyRequest"] = std::move(request);
    sets.push_back(std::move(entry));
  }
  Json spec = {{"queueName", inputs.queue}, {"podSets", std::move(sets)}, {"priority", inputs.priority}};
  if (!inputs.class_name.empty())
    spec["priorityClassRef"] = {
        {"group", inputs.class_group}, {"kind", inputs.class_kind}, {"name", inputs.class_name}};
  if (inputs.maximum_seconds > 0) spec["maximumExecutionTimeSeconds"] = inputs.maximum_seconds;
  workload["spec"] = std::move(spec);
  metadata["annotations"] = inputs.annotations;
  metadata["annotations"][kRenderedAnnotation] = RenderedText(workload);
  for (Json& set : workload["spec"]["podSets"])
    for (const auto& [key, value] : inputs.node_labels) set["template"]["spec"]["nodeSelector"][key] = value;
  if (inputs.slice) {
    metadata["annotations"][kElasticAnnotation] = "true";
    metadata["annotations"][kChainAnnotation] = inputs.chain.empty() ? name : inputs.chain;
  }
  if (inputs.surplus > 0) metadata["annotations"][kSurplusAnnotation] = std::to_string(inputs.surplus);
  if (!inputs.replaces.empty())
    metadata["annotations"][kReplacesAnnotation] = job.metadata.namespace_ + "/" + inputs.replaces;
  return workload;
}

Json AdoptedMetadata(const api::TrainingJob& job, const std::string& job_uid, const Json& workload) {
  const Json own = NewObject(kWorkloadVersion, "Workload", "", job, job_uid)["metadata"];
  Json metadata = {{"labels", own["labels"]}, {"ownerReferences", own["ownerReferences"]}};
  metadata["labels"]["kueue.x-k8s.io/job-uid"] = job_uid;
  Json finalizers = Json::array();
  if (const Json* known = Find(workload, {"metadata", "finalizers"})) finalizers = *known;
  AddOnce(finalizers, kWorkloadFinalizer);
  metadata["finalizers"] = std::move(finalizers);
  return metadata;
}

std::string RenderedText(const Json& workload) {
  Json spec = workload["spec"];
  spec.erase("queueName");
  for (Json& set : spec["podSets"]) {
    set.erase("count");
    set.erase("minCount");
  }
  Json annotations = Json::object();
  if (const Json* all = Find(workload, {"metadata", "annotations"}); all != nullptr)
    for (const auto& [key, value] : all->items())
      if (IsPassedOn(key)) annotations[key] = value;
  return HashHex(HashOf(DumpJson(spec) + (annotations.empty() ? "" : DumpJson(annotations))));
}

void Admit(const Admission& admission, Json& pod) {
  Json& metadata = ObjectIn(pod, "metadata");
  for (const auto& [member, values] :
       {std::pair("labels", &admission.labels), std::pair("annotations", &admission.annotations)})
    for (const auto& [key, value] : *values) ObjectIn(metadata, member)[key] = value;
  Json& spec = ObjectIn(pod, "spec");
  for (const auto& [key, value] : admission.node_selector) ObjectIn(spec, "nodeSelector")[key] = value;
  for (const Json& toleration : admission.tolerations) AddOnce(ListIn(spec, "tolerations"), toleration);
  for (const std::string& gate : admission.scheduling_gates)
    AddOnce(ListIn(spec, "schedulingGates"), {{"name", gate}});
  if (!admission.scheduling_gates.empty() && TopologyRequestOf(pod).is_null())
    ObjectIn(metadata, "annotations")[kUnconstrained] = "true";
}

}  // namespace ringmaster::wiring
