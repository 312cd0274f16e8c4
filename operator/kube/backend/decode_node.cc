// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/decode_node.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "operator/wiring/names.h"
#include "operator/wiring/quantity.h"

namespace ringmaster::kube {

std::shared_ptr<const NodeRecord> DecodeNode(const Json& object, const Meta& meta,
                                             const std::shared_ptr<const NodeRecord>& before,
                                             const WallClock& clock, Time now) {
  auto record = std::make_shared<NodeRecord>();
  core::NodeFacts& facts = record->facts;
  facts.name = meta.name;
  const Json& spec = json::Child(object, "spec");
  const Json& status = json::Child(object, "status");
  facts.allocatable = wiring::ParseResources(json::Child(status, "allocatable"));
  // All labels, since a selector may use any of them.
  if (const Json& labels = json::Child(json::Child(object, "metadata"), "labels"); labels.is_object()) {
    for (const auto& [key, value] : labels.items())
      if (value.is_string()) facts.labels[key] = value.get<std::string>();
  }
  for (const Json& taint : json::Items(spec, "taints"))
    facts.taints.push_back({std::string(json::Text(taint, "key")), std::string(json::Text(taint, "value")),
                            std::string(json::Text(taint, "effect"))});
  facts.unschedulable = json::Flag(spec, "unschedulable");
  facts.ready = false;
  for (const Json& condition : json::Items(status, "conditions")) {
    if (json::Text(condition, "type") != "Ready") continue;
    facts.ready = json::Text(condition, "status") == "True";
    record->ready_transition = json::Text(condition, "lastTransitionTime");
    if (json::Text(condition, "status") != "Unknown") continue;
    const auto since = ParseWallTime(record->ready_transition);
    record->unreachable_since =
        before && before->unreachable_since && before->ready_transition == record->ready_transition
            ? *before->unreachable_since
            : std::min(since.ok() ? clock.ToSteady(*since) : now, now);
  }
  record->boot_id = json::Text(json::Child(status, "nodeInfo"), "bootID");
  if (before) {
    const bool restarted =
        !before->boot_id.empty() && !record->boot_id.empty() && before->boot_id != record->boot_id;
    record->restarted = restarted ? std::optional(now) : before->restarted;
    if (record->boot_id.empty()) record->boot_id = before->boot_id;
  }
  return record;
}

std::shared_ptr<const NamespaceRecord> DecodeNamespace(const Json& object,
                                                       const core::LabelSelector& managed) {
  const Json& metadata = json::Child(object, "metadata");
  auto record = std::make_shared<NamespaceRecord>();
  record->pod_security = json::Text(json::Child(metadata, "labels"), "pod-security.kubernetes.io/enforce");
  std::map<std::string, std::string> labels;
  if (const Json& given = json::Child(metadata, "labels"); given.is_object())
    for (const auto& [key, value] : given.items())
      if (value.is_string()) labels.emplace(key, value.get<std::string>());
  record->managed = core::Selects(managed, labels);
  record->ending = !json::Text(metadata, "deletionTimestamp").empty();
  return record;
}

std::shared_ptr<const PriorityClassRecord> DecodePriorityClass(const Json& object, const Meta& meta) {
  auto record = std::make_shared<PriorityClassRecord>();
  record->name = meta.name;
  record->value = static_cast<int32_t>(json::Integer(object, "value"));
  record->is_default = json::Flag(object, "globalDefault");
  record->preempts = json::Text(object, "preemptionPolicy") != "Never";
  return record;
}

std::shared_ptr<const ObjectRecord> DecodeObject(const Json& object, const Meta& meta, Interners& interners) {
  const Json& metadata = json::Child(object, "metadata");
  const std::string_view job = json::Text(json::Child(metadata, "labels"), wiring::kJobLabel);
  if (job.empty()) return nullptr;
  auto record = std::make_shared<ObjectRecord>();
  record->name = meta.name;
  record->uid = meta.uid;
  record->deleting = !json::Text(metadata, "deletionTimestamp").empty();
  record->prepared_for = interners.marks.Intern(
      std::string(json::Text(json::Child(metadata, "annotations"), kPreparedAnnotation)));
  record->owner = interners.owners.Intern({meta.namespace_ + "/" + std::string(job), ControllerUid(object)});
  return record;
}

}  // namespace ringmaster::kube
