// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/decode_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "operator/kube/wall_time.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {
namespace {

const Json& ConditionOf(const Json& object, std::string_view type) {
  static const Json kNone;
  for (const Json& condition : json::Items(json::Child(object, "status"), "conditions"))
    if (json::Text(condition, "type") == type) return condition;
  return kNone;
}

bool Holds(const Json& object, std::string_view type) {
  return json::Text(ConditionOf(object, type), "status") == "True";
}

core::PodsReady PodsReadyOf(const Json& object) {
  const Json& condition = ConditionOf(object, "PodsReady");
  if (condition.is_null()) return core::PodsReady::kUnreported;
  const bool recovery = json::Text(condition, "reason") == "WaitForRecovery";
  if (json::Text(condition, "status") != "True")
    return recovery ? core::PodsReady::kWaitForRecovery : core::PodsReady::kWaitForStart;
  return json::Text(condition, "reason") == "Recovered" ? core::PodsReady::kRecovered
                                                        : core::PodsReady::kStarted;
}

std::map<std::string, std::string> Texts(const Json& object) {
  std::map<std::string, std::string> texts;
  if (object.is_object()) {
    for (const auto& [key, value] : object.items())
      if (value.is_string()) texts[key] = value.get<std::string>();
  }
  return texts;
}

void Add(const Json& update, wiring::Admission& to) {
  to.labels.merge(Texts(json::Child(update, "labels")));
  to.annotations.merge(Texts(json::Child(update, "annotations")));
  to.node_selector.merge(Texts(json::Child(update, "nodeSelector")));
  for (const Json& toleration : json::Items(update, "tolerations")) to.tolerations.push_back(toleration);
}

// Returns what the admission checks say that are not ready.
std::string ChecksText(const Json& status) {
  std::string text;
  for (const Json& check : json::Items(status, "admissionChecks")) {
    const std::string_view state = json::Text(check, "state");
    if (state == "Ready") continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("its quota is reserved, and the admission check {} is {}", json::Text(check, "name"),
                        state);
    if (const std::string_view message = json::Text(check, "message"); !message.empty())
      text += fmt::format(": {}", message);
  }
  return text;
}

// Sets a condition in the list as the API's conventions ask for.
void Set(Json& conditions, const char* type, bool truth, const std::string& reason,
         const std::string& message, int64_t generation, const std::string& now) {
  Json next = {{"type", type},       {"status", truth ? "True" : "False"}, {"reason", reason},
               {"message", message}, {"observedGeneration", generation},   {"lastTransitionTime", now}};
  for (Json& condition : conditions) {
    if (json::Text(condition, "type") != type) continue;
    if (condition["status"] == next["status"]) next["lastTransitionTime"] = condition["lastTransitionTime"];
    condition = std::move(next);
    return;
  }
  conditions.push_back(std::move(next));
}

void Remove(Json& conditions, std::string_view type) {
  Json kept = Json::array();
  for (Json& condition : conditions)
    if (json::Text(condition, "type") != type) kept.push_back(std::move(condition));
  conditions = std::move(kept);
}

// Returns for how many seconds the Workload has been admitted, as Kueue counts towards its maximum time;
// null: the time starts again, since it was used up and Kueue has deactivated the Workload.
Json TimeUsed(const Json& object, const core::SetWorkloadStatus& change, const std::string& now) {
  const Json& past = json::Child(json::Child(object, "status"), "accumulatedPastExecutionTimeSeconds");
  if (change.message.find("maximum execution time") != std::string::npos) return nullptr;
  const auto since = ParseWallTime(json::Text(ConditionOf(object, "Admitted"), "lastTransitionTime"));
  const auto until = ParseWallTime(now);
  if (!Holds(object, "Admitted") || !since.ok() || !until.ok()) return past;
  const auto used = std::chrono::duration_cast<std::chrono::seconds>(*until - *since).count();
  return (past.is_number_integer() ? past.get<int64_t>() : 0) + std::max<int64_t>(used, 0);
}

}  // namespace

int32_t QueueHead::PositionOf(const std::string& workload) const {
  if (const auto found = positions.find(workload); found != positions.end()) return found->second;
  return whole ? 0 : core::kPositionsListed + 1;
}

QueueHead DecodeQueueHead(const Json& pending_workloads_summary) {
  QueueHead head;
  const Json& items = json::Items(pending_workloads_summary, "items");
  for (const Json& item : items)
    head.positions[std::string(json::Text(json::Child(item, "metadata"), "name"))] =
        static_cast<int32_t>(json::Integer(item, "positionInLocalQueue")) + 1;
  head.whole = items.size() < core::kPositionsListed;
  return head;
}

std::shared_ptr<const WorkloadRecord> DecodeWorkload(const Json& object, const Meta& meta) {
  const Json& metadata = json::Child(object, "metadata");
  const std::string_view label = json::Text(json::Child(metadata, "labels"), wiring::kJobLabel);
  const Json& owner = ControllerOf(object);
  const bool owned = json::Text(owner, "kind") == "TrainingJob" &&
                     json::Text(owner, "apiVersion").starts_with("ringmaster.dev/");
  const std::string_view job = owned ? json::Text(owner, "name") : owner.is_null() ? label : "";
  if (job.empty()) return nullptr;
  const Json& spec = json::Child(object, "spec");
  const Json& status = json::Child(object, "status");
  auto record = std::make_shared<WorkloadRecord>();
  record->job = meta.namespace_ + "/" + std::string(job);
  record->owner_uid = json::Text(owner, "uid");
  record->labelled = label == job;
  const Json& annotations = json::Child(metadata, "annotations");
  record->rendered_for = json::Text(annotations, wiring::kRenderedAnnotation);
  core::Workload& w = record->workload;
  w.slice = json::Text(annotations, wiring::kElasticAnnotation) == "true";
  w.chain = json::Text(annotations, wiring::kChainAnnotation);
  w.surplus = wiring::SurplusNumber(json::Text(annotations, wiring::kSurplusAnnotation));
  const std::string_view replaces = json::Text(annotations, wiring::kReplacesAnnotation);
  w.replaces = replaces.substr(replaces.find('/') + 1);
  w.name = meta.name;
  w.uid = meta.uid;
  w.revision = meta.revision;
  w.queue = json::Text(spec, "queueName");
  w.deleting = !json::Text(metadata, "deletionTimestamp").empty();
  for (const Json& finalizer : json::Items(metadata, "finalizers"))
    w.held |= finalizer == wiring::kWorkloadFinalizer;
  const Json& active = json::Child(spec, "active");
  w.active = !active.is_boolean() || active.get<bool>();
  w.reserved = Holds(object, "QuotaReserved");
  w.admitted = w.reserved && Holds(object, "Admitted");
  w.finished = Holds(object, "Finished");
  const Json& evicted = ConditionOf(object, "Evicted");
  w.evicted = json::Text(evicted, "status") == "True";
  if (w.evicted) {
    w.eviction_reason = json::Text(evicted, "reason");
    w.eviction_message = json::Text(evicted, "message");
  }
  if (!w.reserved)
    w.waits_for = json::Text(ConditionOf(object, "QuotaReserved"), "message");
  else if (!w.admitted)
    w.waits_for = ChecksText(status);
  w.pods_ready = PodsReadyOf(object);
  std::map<std::string_view, int64_t> unused;
  for (const Json& entry : json::Items(status, "reclaimablePods"))
    unused[json::Text(entry, "name")] = json::Integer(entry, "count");
  std::map<std::string_view, int64_t> left;  // of what was asked for
  for (const Json& set : json::Items(spec, "podSets")) {
    const int64_t count = json::Integer(set, "count");
    w.pod_sets.push_back({std::string(json::Text(set, "name")), static_cast<int32_t>(count),
                          static_cast<int32_t>(json::Integer(set, "minCount"))});
    left[json::Text(set, "name")] = std::max<int64_t>(count - unused[json::Text(set, "name")], 0);
  }
  const Json& admission = json::Child(status, "admission");
  record->cluster_queue = json::Text(admission, "clusterQueue");
  for (const Json& entry : json::Items(admission, "podSetAssignments")) {
    const std::string_view name = json::Text(entry, "name");
    const int64_t most = left[name];
    const int64_t assigned = json::Integer(entry, "count", most + unused[name]);
    w.grants.push_back({std::string(name), static_cast<int32_t>(std::min(assigned, most)),
                        static_cast<int32_t>(std::max<int64_t>(assigned - most, 0))});
    WorkloadRecord::Set& set = record->admitted[std::string(name)];
    for (const auto& [resource, flavor] : Texts(json::Child(entry, "flavors"))) set.flavors.push_back(flavor);
    std::sort(set.flavors.begin(), set.flavors.end());
    set.flavors.erase(std::unique(set.flavors.begin(), set.flavors.end()), set.flavors.end());
    set.has_topology = json::Child(entry, "topologyAssignment").is_object();
  }
  for (const Json& check : json::Items(status, "admissionChecks"))
    for (const Json& update : json::Items(check, "podSetUpdates"))
      Add(update, record->admitted[std::string(json::Text(update, "name"))].updates);
  return record;
}

std::shared_ptr<const FlavorRecord> DecodeFlavor(const Json& object, const Meta& meta) {
  const Json& spec = json::Child(object, "spec");
  auto record = std::make_shared<FlavorRecord>();
  record->name = meta.name;
  record->node_labels = Texts(json::Child(spec, "nodeLabels"));
  for (const Json& toleration : json::Items(spec, "tolerations")) record->tolerations.push_back(toleration);
  return record;
}

std::shared_ptr<const LocalQueueRecord> DecodeLocalQueue(const Meta& meta) {
  if (meta.name != core::kDefaultQueue) return nullptr;
  return std::make_shared<LocalQueueRecord>(LocalQueueRecord{meta.namespace_});
}

Json StatusPatch(const Json& object, const core::SetWorkloadStatus& change, const std::string& now) {
  using Change = core::SetWorkloadStatus::Change;
  const Json& metadata = json::Child(object, "metadata");
  const int64_t generation = json::Integer(metadata, "generation");
  Json conditions = json::Items(json::Child(object, "status"), "conditions");
  const auto set = [&](const char* type, bool truth, const std::string& reason, const std::string& message) {
    Set(conditions, type, truth, reason, message, generation, now);
  };
  Json status = Json::object();
  switch (change.change) {
    case Change::kClear: {
      // Kueue itself requeues what it has preempted; the others wait for a back-off, a check or a user.
      const bool requeued = change.reason == "Preempted" || change.reason == "NodeFailures";
      // Kueue knows only this reason when a user activates the Workload again, and would deactivate it at
      // once for a target that it has reached.
      const bool deactivated = change.reason.starts_with("Deactivated");
      if (deactivated) Remove(conditions, "DeactivationTarget");
      status["accumulatedPastExecutionTimeSeconds"] = TimeUsed(object, change, now);
      set("QuotaReserved", false, "Pending", change.message);
      set("Admitted", false, "NoReservation", "The workload has no reservation");
      set("Requeued", requeued, deactivated ? "Deactivated" : change.reason, change.message);
      // Kueue never resets it, and counts the next start from here.
      if (!ConditionOf(object, "PodsReady").is_null())
        set("PodsReady", false, "WaitForStart", "no pod of the job exists");
      status["admission"] = nullptr;
      // The next start needs all pods again.
      status["reclaimablePods"] = nullptr;
      break;
    }
    case Change::kFinish:
      set("Finished", true, change.reason, change.message);
      break;
    case Change::kReport: {
      const bool ready =
          change.pods_ready == core::PodsReady::kStarted || change.pods_ready == core::PodsReady::kRecovered;
      set("PodsReady", ready, core::PodsReadyName(change.pods_ready),
          ready ? "all pods that the job needs run" : "some pods that the job needs do not run");
      break;
    }
    case Change::kGiveBack: {
      Json unused = Json::array();
      for (const core::Grant& entry : change.unused)
        unused.push_back({{"name", entry.name}, {"count", entry.count}});
      status["reclaimablePods"] = std::move(unused);
      break;
    }
  }
  if (change.change != Change::kGiveBack) status["conditions"] = std::move(conditions);
  return {{"metadata", {{"uid", metadata["uid"]}, {"resourceVersion", metadata["resourceVersion"]}}},
          {"status", std::move(status)}};
}

}  // namespace ringmaster::kube
