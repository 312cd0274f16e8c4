// SPDX-License-Identifier: Apache-2.0

// Workloads of Kueue as the API server shows them, and what the operator writes into their status.
#include <gtest/gtest.h>

#include "operator/core/model.h"
#include "operator/kube/backend/decode_workload.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {
namespace {

using Change = core::SetWorkloadStatus::Change;

Json ConditionText(const char* type, const char* status, const char* reason) {
  return {{"type", type},
          {"status", status},
          {"reason", reason},
          {"message", "m"},
          {"lastTransitionTime", "2026-11-25T10:00:00Z"}};
}

// A Workload of six workers, at least two, and two parameter servers; four workers are admitted.
Json AdmittedWorkload() {
  return Json::parse(R"({
    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
    "metadata": {"name": "gpt-abcde", "namespace": "team", "uid": "u", "resourceVersion": "41", "generation": 3,
      "labels": {"ringmaster.dev/job": "gpt"}, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
      "annotations": {"ringmaster.dev/workload-for": "hash"},
      "ownerReferences": [{"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "name": "gpt",
                           "uid": "job-uid", "controller": true}]},
    "spec": {"queueName": "q", "podSets": [{"name": "worker", "count": 6, "minCount": 2, "template": {}},
                                           {"name": "ps", "count": 2, "template": {}}]},
    "status": {
      "admission": {"clusterQueue": "cq", "podSetAssignments": [
        {"name": "worker", "count": 4, "flavors": {"cpu": "spot", "nvidia.com/gpu": "spot", "memory": "main"}},
        {"name": "ps", "count": 2, "flavors": {"cpu": "main"}}]},
      "admissionChecks": [{"name": "check", "state": "Ready", "podSetUpdates": [
        {"name": "worker", "labels": {"a": "b"}, "nodeSelector": {"pool": "x"},
         "tolerations": [{"key": "k", "operator": "Exists"}]}]}],
      "conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
        {"type": "Admitted", "status": "True", "reason": "Admitted"}]}})");
}

std::shared_ptr<const WorkloadRecord> DecodeOne(const Json& object) {
  return DecodeWorkload(object, ReadMeta(object));
}

TEST(DecodeWorkload, ReadsAnAdmission) {
  const auto record = DecodeOne(AdmittedWorkload());
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->job, "team/gpt");
  EXPECT_EQ(record->owner_uid, "job-uid");
  EXPECT_EQ(record->rendered_for, "hash");
  const core::Workload& w = record->workload;
  EXPECT_EQ(w.revision, 41U);
  EXPECT_EQ(w.pod_sets, (std::vector<core::PodSet>{{"worker", 6, 2}, {"ps", 2}}));
  EXPECT_EQ(w.grants, (std::vector<core::Grant>{{"worker", 4}, {"ps", 2}}));
  EXPECT_TRUE(w.held && w.active && w.reserved && w.admitted);
  EXPECT_FALSE(w.evicted || w.finished || w.deleting);
  EXPECT_EQ(record->admitted.at("worker").flavors, (std::vector<std::string>{"main", "spot"}));
  const wiring::Admission& updates = record->admitted.at("worker").updates;
  EXPECT_EQ(updates.labels.at("a"), "b");
  EXPECT_EQ(updates.node_selector.at("pool"), "x");
  EXPECT_EQ(updates.tolerations.size(), 1U);
}

// A label can be removed, or set on the Workload of another owner.
TEST(DecodeWorkload, ItsOwnerDecidesWhoseItIs) {
  Json object = AdmittedWorkload();
  object["metadata"]["labels"]["ringmaster.dev/job"] = "other";
  EXPECT_EQ(DecodeOne(object)->job, "team/gpt");
  EXPECT_FALSE(DecodeOne(object)->labelled);
  object["metadata"].erase("labels");
  EXPECT_EQ(DecodeOne(object)->job, "team/gpt");
  EXPECT_EQ(DecodeOne(object)->owner_uid, "job-uid");
  EXPECT_EQ(DecodeOne(object)->workload.grants, DecodeOne(AdmittedWorkload())->workload.grants);
  object = AdmittedWorkload();
  EXPECT_TRUE(DecodeOne(object)->labelled);
  object["metadata"]["ownerReferences"][0]["kind"] = "Job";
  EXPECT_EQ(DecodeOne(object), nullptr);
  object["metadata"].erase("ownerReferences");  // MultiKueue offers one to the job of its label
  EXPECT_EQ(DecodeOne(object)->job, "team/gpt");
  EXPECT_EQ(DecodeOne(object)->owner_uid, "");
  object["metadata"].erase("labels");
  EXPECT_EQ(DecodeOne(object), nullptr);
}

TEST(DecodeWorkload, ReadsASlice) {
  Json object = AdmittedWorkload();
  Json& annotations = object["metadata"]["annotations"];
  annotations["kueue.x-k8s.io/elastic-job"] = "true";
  annotations["kueue.x-k8s.io/workload-slice-name"] = "gpt-first";
  annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = "team/gpt-before";
  const core::Workload w = DecodeOne(object)->workload;
  EXPECT_TRUE(w.slice);
  EXPECT_EQ(w.chain, "gpt-first");
  EXPECT_EQ(w.replaces, "gpt-before");
}

TEST(DecodeWorkload, ReadsATopology) {
  Json object = AdmittedWorkload();
  object["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
      {"levels", {"kubernetes.io/hostname"}}, {"slices", Json::array()}};
  const auto record = DecodeOne(object);
  EXPECT_TRUE(record->admitted.at("worker").has_topology);
  EXPECT_FALSE(record->admitted.at("ps").has_topology);
}

// Kueue counts the pods that were given back from what was asked for, not from what was admitted.
TEST(DecodeWorkload, GivenBackPodsAreNotGranted) {
  Json object = AdmittedWorkload();
  object["status"]["reclaimablePods"] = {{{"name", "worker"}, {"count", 1}}};
  EXPECT_EQ(core::WorkersGranted({}, DecodeOne(object)->workload), 4);
  object["status"]["reclaimablePods"] = {{{"name", "worker"}, {"count", 3}}};
  EXPECT_EQ(DecodeOne(object)->workload.grants[0], (core::Grant{"worker", 3, 1}));
}

TEST(DecodeWorkload, ReadsWhatIsMissing) {
  Json object = AdmittedWorkload();
  object["status"] = {{"conditions", {ConditionText("QuotaReserved", "False", "Pending")}}};
  object["spec"]["active"] = false;
  const core::Workload w = DecodeOne(object)->workload;
  EXPECT_EQ(w.waits_for, "m");
  EXPECT_FALSE(w.reserved || w.active);
  EXPECT_TRUE(w.grants.empty());
}

TEST(DecodeWorkload, ReadsWhichCheckIsMissing) {
  Json object = AdmittedWorkload();
  object["status"]["conditions"][1]["status"] = "False";
  object["status"]["admissionChecks"].push_back(
      {{"name", "nodes"}, {"state", "Pending"}, {"message", "no capacity yet"}});
  const core::Workload w = DecodeOne(object)->workload;
  EXPECT_TRUE(w.reserved && !w.admitted);
  EXPECT_EQ(w.waits_for, "its quota is reserved, and the admission check nodes is Pending: no capacity yet");
}

// As Kueue's check of ProvisioningRequests and those of others write them.
TEST(DecodeWorkload, AddsTheUpdatesOfAllChecks) {
  Json object = AdmittedWorkload();
  object["status"]["admissionChecks"].push_back(
      {{"name", "nodes"},
       {"state", "Ready"},
       {"podSetUpdates",
        {{{"name", "worker"},
          {"annotations", {{"autoscaling.x-k8s.io/consume-provisioning-request", "gpt-nodes-1"}}},
          {"nodeSelector", {{"group", "g"}}}},
         {{"name", "ps"}, {"annotations", {{"autoscaling.x-k8s.io/provisioning-class-name", "c"}}}}}}});
  const auto record = DecodeOne(object);
  wiring::Admission worker;
  worker.labels = {{"a", "b"}};
  worker.annotations = {{"autoscaling.x-k8s.io/consume-provisioning-request", "gpt-nodes-1"}};
  worker.node_selector = {{"group", "g"}, {"pool", "x"}};
  worker.tolerations = {{{"key", "k"}, {"operator", "Exists"}}};
  EXPECT_EQ(record->admitted.at("worker").updates, worker);
  wiring::Admission ps;
  ps.annotations = {{"autoscaling.x-k8s.io/provisioning-class-name", "c"}};
  EXPECT_EQ(record->admitted.at("ps").updates, ps);
}

TEST(DecodeWorkload, IgnoresThoseOfOthers) {
  Json object = AdmittedWorkload();
  object["metadata"]["labels"] = {{"x", "y"}};
  object["metadata"]["ownerReferences"][0].update({{"apiVersion", "batch/v1"}, {"kind", "Job"}});
  EXPECT_EQ(DecodeOne(object), nullptr);
  EXPECT_EQ(DecodeWorkload(Json(), Meta()), nullptr);
}

core::SetWorkloadStatus ChangeOf(Change change) { return {"gpt-abcde", "u", 41, change, "Preempted", "why"}; }

// Returns the status that the patch leads to, decoded.
core::Workload Patched(Json object, const core::SetWorkloadStatus& change) {
  const Json patch = StatusPatch(object, change, "2026-11-25T12:00:00Z");
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "41");
  object.merge_patch(patch);
  return DecodeOne(object)->workload;
}

TEST(StatusPatch, ClearsAnAdmission) {
  Json object = AdmittedWorkload();
  object["status"]["conditions"].push_back(ConditionText("PodsReady", "True", "Started"));
  object["status"]["reclaimablePods"] = {{{"name", "worker"}, {"count", 3}}};
  const Json patch = StatusPatch(object, ChangeOf(Change::kClear), "2026-11-25T12:00:00Z");
  EXPECT_TRUE(patch["status"]["admission"].is_null());
  EXPECT_TRUE(patch["status"]["reclaimablePods"].is_null());
  const core::Workload w = Patched(object, ChangeOf(Change::kClear));
  EXPECT_FALSE(w.reserved || w.admitted);
  EXPECT_EQ(w.waits_for, "why");
  EXPECT_EQ(w.pods_ready, core::PodsReady::kWaitForStart);
  EXPECT_TRUE(w.grants.empty());
}

// Those that Kueue preempts are requeued at once; the others wait.
TEST(StatusPatch, RequeuesByTheReasonOfTheEviction) {
  const auto requeued = [](const char* reason) {
    core::SetWorkloadStatus change = ChangeOf(Change::kClear);
    change.reason = reason;
    const Json patch = StatusPatch(AdmittedWorkload(), change, "2026-11-25T12:00:00Z");
    for (const Json& condition : patch["status"]["conditions"])
      if (condition["type"] == "Requeued") return condition["status"].get<std::string>();
    return std::string();
  };
  EXPECT_EQ(requeued("Preempted"), "True");
  EXPECT_EQ(requeued("NodeFailures"), "True");
  EXPECT_EQ(requeued("PodsReadyTimeout"), "False");
  EXPECT_EQ(requeued("Deactivated"), "False");
}

// Kueue subtracts it from the maximum execution time of the next admission.
TEST(StatusPatch, CountsTheTimeOfAnAdmission) {
  constexpr const char* kUsed = "accumulatedPastExecutionTimeSeconds";
  Json object = AdmittedWorkload();
  object["status"]["conditions"][1] = ConditionText("Admitted", "True", "Admitted");
  core::SetWorkloadStatus clear = ChangeOf(Change::kClear);
  const auto patched = [&] { return StatusPatch(object, clear, "2026-11-25T10:01:30Z")["status"][kUsed]; };
  EXPECT_EQ(patched(), 90);
  object["status"][kUsed] = 60;
  EXPECT_EQ(patched(), 150);
  object["status"]["conditions"][1]["status"] = "False";
  EXPECT_EQ(patched(), 60) << "its quota was reserved, and an admission check was pending";
  object["status"]["conditions"][1]["status"] = "True";
  clear.reason = "Deactivated";
  clear.message = "The workload is deactivated due to exceeding the maximum execution time";
  EXPECT_TRUE(patched().is_null()) << "one that is activated again has the whole time";
}

// Kueue looks for this reason when a user activates the Workload again.
TEST(StatusPatch, OneThatKueueDeactivatedCanBeActivatedAgain) {
  Json object = AdmittedWorkload();
  object["status"]["conditions"].push_back(ConditionText("DeactivationTarget", "True", "x"));
  core::SetWorkloadStatus clear = ChangeOf(Change::kClear);
  const auto reasons = [&] {
    std::map<std::string, std::string> found;
    const Json patch = StatusPatch(object, clear, "2026-11-25T12:00:00Z");
    for (const Json& condition : patch["status"]["conditions"])
      found[condition["type"]] = condition["reason"];
    return found;
  };
  EXPECT_TRUE(reasons().contains("DeactivationTarget")) << "it was preempted, and Kueue deactivates it next";
  clear.reason = "DeactivatedDueToRequeuingLimitExceeded";
  EXPECT_FALSE(reasons().contains("DeactivationTarget"));
  EXPECT_EQ(reasons()["Requeued"], "Deactivated");
  EXPECT_EQ(reasons()["QuotaReserved"], "Pending");
}

TEST(StatusPatch, KeepsTheConditionsOfOthersAndTheirTimes) {
  Json object = AdmittedWorkload();
  object["status"]["conditions"].push_back(ConditionText("PodsReady", "False", "WaitForStart"));
  core::SetWorkloadStatus report = ChangeOf(Change::kReport);
  report.pods_ready = core::PodsReady::kWaitForRecovery;
  const Json patch = StatusPatch(object, report, "2026-11-25T12:00:00Z");
  const Json& conditions = patch["status"]["conditions"];
  ASSERT_EQ(conditions.size(), 3U);
  EXPECT_EQ(conditions[0], object["status"]["conditions"][0]);
  EXPECT_EQ(conditions[2]["lastTransitionTime"], "2026-11-25T10:00:00Z") << "it was False before";
  EXPECT_EQ(conditions[2]["observedGeneration"], 3);
  report.pods_ready = core::PodsReady::kRecovered;
  EXPECT_EQ(Patched(object, report).pods_ready, core::PodsReady::kRecovered);
}

TEST(StatusPatch, Finishes) { EXPECT_TRUE(Patched(AdmittedWorkload(), ChangeOf(Change::kFinish)).finished); }

TEST(DecodeQueueHead, ReadsPositions) {
  const Json summary = Json::parse(R"({"items": [
    {"metadata": {"name": "a", "namespace": "team"}, "priority": 5, "localQueueName": "q",
     "positionInClusterQueue": 4, "positionInLocalQueue": 0},
    {"metadata": {"name": "b", "namespace": "team"}, "priority": 0, "localQueueName": "q",
     "positionInClusterQueue": 9, "positionInLocalQueue": 1}]})");
  const QueueHead head = DecodeQueueHead(summary);
  EXPECT_EQ(head.PositionOf("a"), 1);
  EXPECT_EQ(head.PositionOf("b"), 2);
  EXPECT_EQ(head.PositionOf("c"), 0) << "it does not wait in this queue, or Kueue has not seen it yet";
}

TEST(DecodeQueueHead, AFullListHasMoreBehindIt) {
  Json summary = {{"items", Json::array()}};
  for (int i = 0; i < core::kPositionsListed; ++i)
    summary["items"].push_back(
        {{"metadata", {{"name", "w" + std::to_string(i)}}}, {"positionInLocalQueue", i}});
  EXPECT_EQ(DecodeQueueHead(summary).PositionOf("w99"), core::kPositionsListed);
  EXPECT_EQ(DecodeQueueHead(summary).PositionOf("another"), core::kPositionsListed + 1);
}

}  // namespace
}  // namespace ringmaster::kube
