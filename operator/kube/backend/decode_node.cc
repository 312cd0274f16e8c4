#include "operator/kube/backend/decode_node.h"

#include <algorithm>
#include <utility>

#include "operator/kube/backend/quantity.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {

std::shared_ptr<const NodeRecord> DecodeNode(const Json& object, const Meta& meta,
                                             const std::shared_ptr<const NodeRecord>& before,
                                             const WallClock& clock, Time now) {
  auto record = std::make_shared<NodeRecord>();
  core::NodeFacts& facts = record->facts;
  facts.name = meta.name;
  const Json& spec = Child(object, "spec");
  const Json& status = Child(object, "status");
  facts.allocatable = ParseResources(Child(status, "allocatable"));
  // All labels: a selector may name any.
  if (const Json& labels = Child(Child(object, "metadata"), "labels"); labels.is_object()) {
    for (const auto& [key, value] : labels.items())
      if (value.is_string()) facts.labels[key] = value.get<std::string>();
  }
  for (const Json& taint : Items(spec, "taints"))
    facts.taints.push_back({std::string(Text(taint, "key")), std::string(Text(taint, "value")),
                            std::string(Text(taint, "effect"))});
  facts.unschedulable = Flag(spec, "unschedulable");
  facts.ready = false;
  for (const Json& condition : Items(status, "conditions")) {
    if (Text(condition, "type") != "Ready") continue;
    facts.ready = Text(condition, "status") == "True";
    record->ready_transition = Text(condition, "lastTransitionTime");
    if (Text(condition, "status") != "Unknown") continue;
    const auto since = ParseWallTime(record->ready_transition);
    record->unreachable_since =
        before && before->unreachable_since && before->ready_transition == record->ready_transition
            ? *before->unreachable_since
            : std::min(since.ok() ? clock.ToSteady(*since) : now, now);
  }
  return record;
}

std::shared_ptr<const NamespaceRecord> DecodeNamespace(const Json& object) {
  const Json& metadata = Child(object, "metadata");
  auto record = std::make_shared<NamespaceRecord>();
  record->pod_security = Text(Child(metadata, "labels"), "pod-security.kubernetes.io/enforce");
  record->ending = !Text(metadata, "deletionTimestamp").empty();
  return record;
}

std::shared_ptr<const ObjectRecord> DecodeObject(const Json& object, const Meta& meta, Pool& pool) {
  const Json& metadata = Child(object, "metadata");
  const std::string_view job = Text(Child(metadata, "labels"), wiring::kJobLabel);
  if (job.empty()) return nullptr;
  auto record = std::make_shared<ObjectRecord>();
  record->name = meta.name;
  record->uid = meta.uid;
  record->prepared_for =
      pool.marks.Of(std::string(Text(Child(metadata, "annotations"), kPreparedAnnotation)));
  std::string uid;
  for (const Json& owner : Items(metadata, "ownerReferences"))
    if (Flag(owner, "controller")) uid = Text(owner, "uid");
  record->owner = pool.owners.Of({meta.namespace_ + "/" + std::string(job), std::move(uid)});
  return record;
}

}  // namespace ringmaster::kube
