// SPDX-License-Identifier: Apache-2.0

// KubeBackend over scripted responses: what it does before a response arrives, and after one that no real
// API server gives on demand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <set>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/wall_time.h"
#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

// A client that reads the new status from the API server, and then the metrics, finds the event counted: the
// watch, which reports the status to the operator later, is silent here.
TEST_F(BackendTest, AStatusIsCountedBeforeTheServerHasIt) {
  std::vector<std::pair<core::JobCounts, core::JobCounts>> counted;
  KubeBackend::Options options;
  options.on_counts = [&](const JobRecord& job, const core::JobCounts& before, const core::Status& status) {
    counted.emplace_back(before, core::JobCountsOf(job.spec->job, status));
  };
  Start(std::move(options));
  size_t counted_at_server = 0;
  on_put_ = [&](const HttpRequest&) {
    counted_at_server = counted.size();
    return Response(409, R"({"kind": "Status", "reason": "Conflict"})");
  };
  core::Status status;
  status.ledger.attempt = 2;
  status.ledger.restarts = {1, 1, 0};
  EXPECT_EQ(WriteStatus(status).error().code, Code::kConflict);
  EXPECT_EQ(counted_at_server, 1U);
  EXPECT_EQ(counted.at(0).second.restarts - counted.at(0).first.restarts, 1);

  // The same decision after the conflict is not counted again, and only what is new in the next.
  on_put_ = [&](const HttpRequest&) {
    counted_at_server = counted.size();
    return Response(200, R"({"metadata": {"name": "a", "namespace": "ml", "resourceVersion": "11"}})");
  };
  EXPECT_TRUE(WriteStatus(status).ok());
  EXPECT_EQ(counted.size(), 1U);
  status.ledger.outcome = core::Outcome::kSucceeded;
  EXPECT_TRUE(WriteStatus(status).ok());
  EXPECT_EQ(counted_at_server, 2U);
  EXPECT_EQ(counted.at(1).first.restarts, 1);
  EXPECT_TRUE(counted.at(1).second.ended && !counted.at(1).first.ended);
}

// A gang that trains reports each 20 ms. Such a report must not cause a decision, which costs as much as one
// about a failure.
TEST_F(BackendTest, ProgressAloneNotifiesOncePerInterval) {
  job_ = kNativeJob;
  KubeBackend::Options options;
  options.progress_every = std::chrono::hours(1);
  Start(std::move(options));
  std::atomic<int> notified{0};
  backend_->Subscribe([&](const control::Key&) { ++notified; });
  rendezvous::Report report;
  report.phase = rendezvous::GangPhase::kActive;
  backend_->SetReport(kKey, "u", report);
  EXPECT_EQ(notified, 1);
  ASSERT_EQ(backend_->Observe(kKey)->observed.invalid, "");
  for (int step = 1; step <= 100; ++step) {
    report.step = step;
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.samples_per_second = step;
    report.kept_samples = 32 * step;
    report.checkpoint_step = step / 10;
    report.seconds_left = 100 - step;
    backend_->SetReport(kKey, "u", report);
  }
  EXPECT_EQ(notified, 1);
  EXPECT_EQ(backend_->Observe(kKey)->observed.report->step, 100) << "a decision for another reason sees it";
  report.live_pods = {"a-1-0"};
  backend_->SetReport(kKey, "u", report);
  EXPECT_EQ(notified, 2);
  report.generation = 2;
  backend_->SetReport(kKey, "u", report);
  EXPECT_EQ(notified, 3);
  report.phase = rendezvous::GangPhase::kFailed;
  backend_->SetReport(kKey, "u", report);
  EXPECT_EQ(notified, 4);
}

TEST_F(BackendTest, TheCensusHasTheSpeedOfJobsThatTrain) {
  job_ = kNativeJob;
  Start({});
  rendezvous::Report report;
  report.samples_per_second = 8;
  backend_->SetReport(kKey, "u", report);
  EXPECT_TRUE(backend_->TakeCensus().samples_per_second.empty());
  report.phase = rendezvous::GangPhase::kActive;
  backend_->SetReport(kKey, "u", report);
  const std::map<std::pair<std::string, std::string>, double> wanted = {{{"ml", "a"}, 8}};
  EXPECT_EQ(backend_->TakeCensus().samples_per_second, wanted);
}

TEST_F(BackendTest, TheCensusHasTheGoodputOfJobsThatTrain) {
  job_ = kNativeJob;
  Start({});
  const Time start = Now();
  const auto after = [&](int64_t count) { return backend_->TakeCensus(start + seconds(count)).goodput; };
  rendezvous::Report report;
  report.phase = rendezvous::GangPhase::kActive;
  report.kept_samples = 100;
  backend_->SetReport(kKey, "u", report);
  report.kept_samples = 2100;
  backend_->SetReport(kKey, "u", report);
  EXPECT_TRUE(after(0).empty());
  const std::pair<std::string, std::string> job = {"ml", "a"};
  EXPECT_NEAR(after(40).at(job), 50, 1);
  report.phase = rendezvous::GangPhase::kPaused;
  backend_->SetReport(kKey, "u", report);
  EXPECT_EQ(after(200).at(job), 0) << "a pause counts";
  report.phase = rendezvous::GangPhase::kStopped;
  backend_->SetReport(kKey, "u", report);
  EXPECT_TRUE(after(200).empty());
}

TEST_F(BackendTest, JobsNeedAQueueWhereKueueManagesTheirNamespace) {
  KubeBackend::Options options;
  options.kueue_required = true;
  options.kueue_namespaces = core::ParseLabelSelector("kueue!=off").value();
  namespace_ = R"({"metadata": {"name": "ml", "resourceVersion": "5", "labels": {"kueue": "off"}}})";
  Start(std::move(options));
  EXPECT_FALSE(backend_->Observe(kKey)->observed.quota);
  std::atomic<int> notified{0};
  backend_->Subscribe([&](const control::Key&) { ++notified; });
  Line("namespaces", "MODIFIED", R"({"metadata": {"name": "ml", "resourceVersion": "20"}})");
  EXPECT_GE(notified, 1);
  ASSERT_TRUE(backend_->Observe(kKey)->observed.quota);
  EXPECT_TRUE(backend_->Observe(kKey)->observed.quota->required);
}

TEST_F(BackendTest, ProgressIsNotLost) {
  job_ = kNativeJob;
  KubeBackend::Options options;
  options.progress_every = milliseconds(1);
  Start(std::move(options));
  rendezvous::Report report;
  backend_->SetReport(kKey, "u", report);
  for (int round = 0; round < 3; ++round) {
    auto notified = std::make_shared<std::promise<void>>();
    auto once = std::make_shared<std::atomic<bool>>(false);
    backend_->Subscribe([notified, once](const control::Key&) {
      if (!once->exchange(true)) notified->set_value();
    });
    report.step += 1;
    backend_->SetReport(kKey, "u", report);
    EXPECT_EQ(notified->get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  }
}

TEST_F(BackendTest, TheCensusFollowsThePods) {
  Start({});
  const auto census = [&] { return backend_->TakeCensus(); };
  EXPECT_EQ(census().jobs[static_cast<size_t>(core::Phase::kPending)], 1);
  EXPECT_EQ(census().pods, 0);
  const std::string gated = R"({"schedulingGates": [{"name": "ringmaster.dev/gang"}], "containers": []})";
  Line("pods", "ADDED", PodOnServer("a-1-0", gated, 20));
  EXPECT_EQ(census().pods, 1);
  Line("pods", "ADDED", PodOnServer("a-1-1", gated, 21));
  const std::string bound = R"({"nodeName": "n", "containers": []})";
  Line("pods", "MODIFIED", PodOnServer("a-1-0", bound, 22));
  Line("pods", "MODIFIED", PodOnServer("a-1-1", bound, 23));
  EXPECT_EQ(census().pods, 2);
  Line("pods", "DELETED", PodOnServer("a-1-0", bound, 24));
  EXPECT_EQ(census().pods, 1);
  EXPECT_EQ(census().gangs_waiting, 0);
  EXPECT_EQ(census().queue_lengths, (std::map<std::string, int64_t>{{"ml", 0}}));
  Json waits = Json::parse(kJobOnServer);
  waits["metadata"]["resourceVersion"] = "30";
  waits["status"]["conditions"] = Json::array({{{"type", "Scheduled"},
                                                {"status", "False"},
                                                {"reason", "WaitingForCapacity"},
                                                {"message", "needs a node"},
                                                {"lastTransitionTime", "2026-01-01T00:00:00Z"}}});
  Line("trainingjobs", "MODIFIED", waits.dump());
  EXPECT_EQ(census().gangs_waiting, 1);
  EXPECT_EQ(census().queue_lengths, (std::map<std::string, int64_t>{{"ml", 1}}));
}

// The operator stops to watch an API that was uninstalled, and follows it again when it is back.
TEST_F(BackendTest, AnUninstalledGangApiIsForgotten) {
  groups_["scheduling.volcano.sh"] = true;
  KubeBackend::Options options;
  options.gang = core::GangMode::kVolcano;
  Start(std::move(options));
  const auto preflight = [&] { return backend_->Observe(kKey)->observed.preflight; };
  ASSERT_TRUE(Await([&] { return backend_->Synced() && backend_->Problems().empty(); }));
  EXPECT_FALSE(preflight().has_value());
  groups_["scheduling.volcano.sh"] = false;
  server_.End(server_.AwaitStreamOf("scheduling.volcano.sh"), Response(404, R"({"reason": "NotFound"})"));
  ASSERT_TRUE(Await([&] { return preflight().has_value(); }));
  EXPECT_EQ(preflight()->kind, core::RefusalKind::kNoGangProvider);
  EXPECT_TRUE(Await([&] { return backend_->Synced() && backend_->Problems().empty(); }));
}

std::string Lease(WallTime renewed) {
  return Json({{"spec",
                {{"holderIdentity", "a"},
                 {"leaseDurationSeconds", 15},
                 {"renewTime", WallTimeText(renewed)}}}})
      .dump();
}

class AutomaticGang : public BackendTest {
 protected:
  core::GangProvider Provider() {
    groups_["scheduling.volcano.sh"] = true;
    Start({});
    EXPECT_TRUE(Await([&] { return backend_->Synced(); }));
    return backend_->Observe(kKey)->observed.provider;
  }
};

TEST_F(AutomaticGang, IsVolcanosWhileItsSchedulerRuns) {
  lease_ = Lease(WallNow());
  EXPECT_EQ(Provider(), core::GangProvider::kScheduler);
}

TEST_F(AutomaticGang, IsTheGateWithoutALease) { EXPECT_EQ(Provider(), core::GangProvider::kGate); }

TEST_F(AutomaticGang, IsTheGateAfterTheSchedulerHasEnded) {
  lease_ = Lease(WallNow() - seconds(3600));
  EXPECT_EQ(Provider(), core::GangProvider::kGate);
}

TEST_F(AutomaticGang, IsTheGateForAnotherScheduler) {
  lease_ = Lease(WallNow());
  Json job = Json::parse(kJobOnServer);
  job["spec"]["workers"]["template"]["spec"]["schedulerName"] = "mine";
  job_ = job.dump();
  EXPECT_EQ(Provider(), core::GangProvider::kGate);
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
}

TEST_F(BackendTest, ASchedulerThatDoesNotKnowTheGangIsRefused) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["scheduling"]["gang"] = "volcano";
  job["spec"]["workers"]["template"]["spec"]["schedulerName"] = "mine";
  job_ = job.dump();
  groups_["scheduling.volcano.sh"] = true;
  Start({});
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  const auto refusal = backend_->Observe(kKey)->observed.preflight;
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, core::RefusalKind::kOtherScheduler);
  EXPECT_EQ(refusal->message.find("spec.workers.template.spec.schedulerName: mine"), 0U) << refusal->message;
  job["spec"]["workers"]["template"]["spec"]["schedulerName"] = "volcano";
  job["metadata"]["resourceVersion"] = "30";
  job["metadata"]["generation"] = 2;
  Line("trainingjobs", "MODIFIED", job.dump());
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
}

// A job with a gang of Volcano in a queue.
class VolcanoQueue : public BackendTest {
 protected:
  // Returns the answer to its PrepareGang. `queue`: to the request for the queue.
  Result<control::Revision> Prepare(HttpResponse queue, const char* api) {
    Json job = Json::parse(kJobOnServer);
    job["spec"]["scheduling"] = {{"gang", "volcano"}, {"queue", "team-a"}};
    job_ = job.dump();
    groups_["scheduling.volcano.sh"] = true;
    on_get_ = [this, queue, api](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.target.ends_with("/apis/scheduling.volcano.sh/v1beta1")) return Response(200, api);
      if (!request.target.ends_with("/apis/scheduling.volcano.sh/v1beta1/queues/team-a")) return std::nullopt;
      return exists_ ? Response(200, "{}") : queue;
    };
    on_post_ = [this](const HttpRequest&) -> Result<HttpResponse> {
      ++created_;
      return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
    };
    KubeBackend::Options options;
    options.context = [](const control::Key&) { return wiring::Context(); };
    Start(std::move(options));
    EXPECT_TRUE(Await([&] { return backend_->Synced(); }));
    return Again();
  }
  Result<control::Revision> Again() {
    auto done = std::make_shared<std::promise<Result<control::Revision>>>();
    backend_->Execute({kKey, "u", core::PrepareGang{1, 2, 2}, control::Revision{7}},
                      [done](Result<control::Revision> result) { done->set_value(std::move(result)); });
    return done->get_future().get();
  }
  std::optional<core::Refusal> Preflight() { return backend_->Observe(kKey)->observed.preflight; }

  std::atomic<bool> exists_{false};
  std::atomic<int> created_{0};
};

constexpr const char* kBothServed = R"({"resources": [{"name": "podgroups"}, {"name": "queues"}]})";

TEST_F(VolcanoQueue, ThatDoesNotExistIsAwaited) {
  EXPECT_FALSE(Prepare(Response(404, R"({"reason": "NotFound"})"), kBothServed).ok());
  EXPECT_EQ(created_, 0);
  ASSERT_TRUE(Preflight().has_value());
  EXPECT_EQ(Preflight()->kind, core::RefusalKind::kNoQueue);
  EXPECT_EQ(Preflight()->message, "Volcano has no queue team-a");
  exists_ = true;
  // The operator asks again, at once after a watch that fails.
  server_.End(server_.AwaitStreamOf("scheduling.volcano.sh"), Response(404, R"({"reason": "NotFound"})"));
  ASSERT_TRUE(Await([&] { return !Preflight().has_value(); }));
  EXPECT_TRUE(Again().ok());
  EXPECT_GT(created_, 0);
}

TEST_F(VolcanoQueue, ThatTheOperatorMayNotReadIsTheSchedulersAffair) {
  EXPECT_TRUE(Prepare(Response(403, R"({"reason": "Forbidden"})"), kBothServed).ok());
  EXPECT_FALSE(Preflight().has_value());
  EXPECT_GT(created_, 0);
}

TEST_F(VolcanoQueue, WithoutQueuesInTheApiIsTheSchedulersAffair) {
  EXPECT_TRUE(Prepare(Response(404, "404 page not found"), R"({"resources": [{"name": "podgroups"}]})").ok());
  EXPECT_FALSE(Preflight().has_value());
  EXPECT_GT(created_, 0);
}

std::string PriorityClassOnServer(const std::string& name, int value, int revision) {
  return Json({{"metadata", {{"name", name}, {"resourceVersion", std::to_string(revision)}}},
               {"value", value}})
      .dump();
}

// Nothing is created for a job whose class is missing. The class makes it go on.
TEST_F(BackendTest, AJobWaitsForItsPriorityClass) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["scheduling"]["priorityClassName"] = "urgent";
  job_ = job.dump();
  priority_classes_ = PriorityClassOnServer("batch", 5, 6);
  Start({});
  const auto preflight = [&] { return backend_->Observe(kKey)->observed.preflight; };
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  ASSERT_TRUE(preflight().has_value());
  EXPECT_EQ(preflight()->kind, core::RefusalKind::kNoPriorityClass);
  EXPECT_EQ(preflight()->message, "the cluster has no PriorityClass urgent");
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const control::Key& changed) { notified = notified || changed == kKey; });
  Line("priorityclasses", "ADDED", PriorityClassOnServer("urgent", 1000, 20));
  EXPECT_TRUE(Await([&] { return notified.load(); }));
  EXPECT_FALSE(preflight().has_value());
  Line("priorityclasses", "DELETED", PriorityClassOnServer("urgent", 1000, 21));
  EXPECT_TRUE(preflight().has_value());
}

std::string NodeOnServer(const std::string& name, const std::string& labels, int revision) {
  return R"({"metadata": {"name": ")" + name + R"(", "resourceVersion": ")" + std::to_string(revision) +
         R"(", "labels": {"kubernetes.io/hostname": "h", )" + labels + "}}}";
}

// Nothing is created for a gang whose label no node has. A node with the label makes it go on.
TEST_F(BackendTest, AJobWaitsForALabelOfItsTopology) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["scheduling"]["topology"]["required"] = "example.com/leaf";
  job_ = job.dump();
  Start({});
  const auto preflight = [&] { return backend_->Observe(kKey)->observed.preflight; };
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  EXPECT_FALSE(preflight().has_value()) << "there are no nodes: it waits for room";
  Line("nodes", "ADDED", NodeOnServer("n1", R"("topology.kubernetes.io/zone": "a", "rack": "r")", 20));
  ASSERT_TRUE(preflight().has_value());
  EXPECT_EQ(preflight()->kind, core::RefusalKind::kNoTopologyLabel);
  EXPECT_EQ(preflight()->message,
            "scheduling.topology.required is example.com/leaf, and no node has this label; nodes have rack, "
            "topology.kubernetes.io/zone");
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const control::Key& changed) { notified = notified || changed == kKey; });
  Line("nodes", "ADDED", NodeOnServer("n2", R"("example.com/leaf": "x")", 21));
  EXPECT_TRUE(Await([&] { return notified.load(); }));
  EXPECT_FALSE(preflight().has_value());
  EXPECT_EQ(backend_->DomainOf(kKey, "n2"), "x");
  EXPECT_EQ(backend_->DomainOf(kKey, "n1"), "");
  Line("nodes", "DELETED", NodeOnServer("n2", R"("example.com/leaf": "x")", 22));
  EXPECT_TRUE(preflight().has_value());
}

// Kueue chooses the nodes. Ring neighbours and the reported spread go by the label of its annotation.
TEST_F(BackendTest, TheTopologyOfKueueOrdersTheRing) {
  Json job = Json::parse(kJobOnServer);
  job["status"]["attempt"] = 1;
  Json& annotations = job["spec"]["workers"]["template"]["metadata"]["annotations"];
  annotations = {{"kueue.x-k8s.io/podset-preferred-topology", "rack"}};
  job_ = job.dump();
  Start({});
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  Line("nodes", "ADDED", NodeOnServer("n1", R"("rack": "r", "zone": "a")", 20));
  Line("nodes", "ADDED", NodeOnServer("n2", R"("zone": "b")", 21));
  EXPECT_EQ(backend_->DomainOf(kKey, "n1"), "r");
  EXPECT_EQ(backend_->DomainOf(kKey, "n2"), "");
  const auto spread = [&] { return backend_->Observe(kKey)->observed.spread; };
  Line("pods", "ADDED", PodOnServer("a-1-0", R"({"nodeName": "n2", "containers": []})", 22));
  EXPECT_EQ(spread(), std::nullopt) << "without a queue the annotation may name anything";
  Line("pods", "ADDED", PodOnServer("a-1-1", R"({"nodeName": "n1", "containers": []})", 23));
  EXPECT_EQ(spread(), (core::TopologySpread{"rack", 1, "r: 1, without the label: 1"}));
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value()) << "Kueue reports a missing level";
  annotations = {{"kueue.x-k8s.io/podset-required-topology", "zone"}};
  job["metadata"]["generation"] = 2;
  job["metadata"]["resourceVersion"] = "24";
  Line("trainingjobs", "MODIFIED", job.dump());
  EXPECT_EQ(backend_->DomainOf(kKey, "n2"), "b");
  EXPECT_EQ(spread(), (core::TopologySpread{"zone", 2, "a: 1, b: 1"}));
}

// The labels of docs/operate/topology.md, which users look for when theirs is missing.
TEST_F(BackendTest, ARefusedTopologyNamesTheLabelsOfEachCloud) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["scheduling"]["topology"]["required"] = "example.com/none";
  job_ = job.dump();
  Start({});
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  int revision = 20;
  for (const std::string label :
       {"topology.kubernetes.io/zone", "nvidia.com/gpu.clique", "network.topology.nvidia.com/leaf",
        "accelerator.topograph.run/domain", "fabric.topograph.run/tier-0",
        "cloud.google.com/gce-topology-block", "topology.k8s.aws/network-node-layer-3",
        "oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.local_block_id",
        "ib.coreweave.cloud/fabric", "ib.coreweave.cloud/superpod", "ib.coreweave.cloud/leafgroup",
        "node.coreweave.cloud/rack", "ds.coreweave.com/nvlink.domain", "kubernetes.azure.com/agentpool"}) {
    const std::string node = NodeOnServer("n", fmt::format(R"("{}": "x")", label), ++revision);
    Line("nodes", revision == 21 ? "ADDED" : "MODIFIED", node);
    const auto refused = backend_->Observe(kKey)->observed.preflight;
    ASSERT_TRUE(refused.has_value());
    EXPECT_TRUE(refused->message.ends_with("nodes have " + label)) << refused->message;
  }
}

// As the pods are rendered: the template's class goes before the job's field.
TEST_F(BackendTest, TheClassOfATemplateCounts) {
  Json job = Json::parse(kJobOnServer);
  job["spec"]["workers"]["template"]["spec"]["priorityClassName"] = "batch";
  job_ = job.dump();
  Start({});
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  ASSERT_TRUE(backend_->Observe(kKey)->observed.preflight.has_value());
  EXPECT_EQ(backend_->Observe(kKey)->observed.preflight->message, "the cluster has no PriorityClass batch");
  job["spec"]["scheduling"]["priorityClassName"] = "other";
  job["metadata"]["resourceVersion"] = "30";
  job["metadata"]["generation"] = 2;
  Line("trainingjobs", "MODIFIED", job.dump());
  EXPECT_EQ(backend_->Observe(kKey)->observed.preflight->message, "the cluster has no PriorityClass batch");
  job["spec"]["workers"]["template"]["spec"].erase("priorityClassName");
  job["metadata"]["resourceVersion"] = "31";
  job["metadata"]["generation"] = 3;
  Line("trainingjobs", "MODIFIED", job.dump());
  EXPECT_EQ(backend_->Observe(kKey)->observed.preflight->message, "the cluster has no PriorityClass other");
}

// Only the API server knows its exemptions from Pod Security. It is asked before a pod exists.
TEST_F(BackendTest, AnExemptionFromPodSecurityCounts) {
  namespace_ = R"({"metadata": {"name": "ml", "resourceVersion": "5",
    "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})";
  int asked = 0;
  Result<HttpResponse> answer = Response(201, "{}");
  on_post_ = [&](const HttpRequest& request) -> Result<HttpResponse> {
    if (request.target.find("dryRun=All") == std::string::npos)
      return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
    EXPECT_NE(request.target.find("/pods?"), std::string::npos) << request.target;
    asked += 1;
    return answer;
  };
  KubeBackend::Options options;
  options.context = [](const control::Key&) { return wiring::Context(); };
  Start(std::move(options));
  const auto prepare = [&] {
    auto done = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = done->get_future();
    backend_->Execute({kKey, "u", core::PrepareGang{1, 2, 2}, control::Revision{7}},
                      [done](Result<control::Revision> result) { done->set_value(std::move(result)); });
    return future.get();
  };
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
  EXPECT_TRUE(prepare().ok());
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(backend_->Observe(kKey)->observed.prepared.has_value());

  answer = Response(403, R"({"kind": "Status", "reason": "Forbidden", "message": "violates PodSecurity"})");
  EXPECT_EQ(prepare().error().code, Code::kForbidden);
  EXPECT_FALSE(backend_->Observe(kKey)->observed.prepared.has_value());
  // A webhook that supports no dry run refuses nothing.
  answer = Response(400, R"({"kind": "Status", "reason": "BadRequest", "message": "no dry run"})");
  EXPECT_TRUE(prepare().ok());
  EXPECT_TRUE(backend_->Observe(kKey)->observed.prepared.has_value());
}

// The template of each role may be refused alone, and so may that of the first worker.
TEST_F(BackendTest, PodSecurityIsAskedForEachTemplate) {
  namespace_ = R"({"metadata": {"name": "ml", "resourceVersion": "5",
    "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})";
  Json job = Json::parse(kJobOnServer);
  Json& spec = job["spec"];
  spec["workers"]["template"]["spec"]["containers"][0]["command"] = {"train"};
  const Json pod = spec["workers"]["template"];
  spec["roles"] = Json::array({{{"name", "master"}, {"template", pod}}});
  job_ = job.dump();
  std::set<std::string> asked;
  std::string refused;
  on_post_ = [&](const HttpRequest& request) -> Result<HttpResponse> {
    EXPECT_NE(request.target.find("dryRun=All"), std::string::npos) << request.target;
    const std::string name = Json::parse(request.body)["metadata"]["name"];
    asked.insert(name);
    if (name != refused) return Response(201, "{}");
    return Response(403, R"({"kind": "Status", "reason": "Forbidden", "message": "violates PodSecurity"})");
  };
  KubeBackend::Options options;
  options.context = [](const control::Key&) { return wiring::Context(); };
  Start(std::move(options));
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  const auto ask = [&] {
    asked.clear();
    auto done = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = done->get_future();
    backend_->Execute({kKey, "u", core::TryPods{1, 2}, control::Revision{7}},
                      [done](Result<control::Revision> result) { done->set_value(std::move(result)); });
    return future.get();
  };
  ASSERT_EQ(backend_->Observe(kKey)->observed.invalid, "");
  for (refused = "a-1-0"; refused != ""; refused = refused == "a-1-0" ? "a-1-1" : "")
    EXPECT_EQ(ask().error().code, Code::kForbidden) << refused;
  EXPECT_TRUE(ask().ok());
  EXPECT_EQ(asked, (std::set<std::string>{"a-1-0", "a-1-1"}));

  spec["framework"] = "tensorflow";
  spec.erase("launch");
  spec["roles"] = Json::array(
      {{{"name", "chief"}, {"template", pod}}, {{"name", "ps"}, {"replicas", 2}, {"template", pod}}});
  job["metadata"]["generation"] = 2;
  job["metadata"]["resourceVersion"] = "30";
  Line("trainingjobs", "MODIFIED", job.dump());
  ASSERT_EQ(backend_->Observe(kKey)->observed.invalid, "");
  refused = "a-1-ps-0";
  EXPECT_EQ(ask().error().code, Code::kForbidden);
  refused.clear();
  EXPECT_TRUE(ask().ok());
  EXPECT_EQ(asked, (std::set<std::string>{"a-1-0", "a-1-chief-0", "a-1-ps-0"}));
}

TEST_F(BackendTest, ADeletedJobKeepsItsHostPortsUntilItsPodsHaveEnded) {
  const auto job = [](const std::string& name) {
    Json object = Json::parse(kJobOnServer);
    object["metadata"]["name"] = name;
    object["metadata"]["uid"] = name == "a" ? "u" : "v";
    object["spec"]["network"]["hostNetwork"] = true;
    return object.dump();
  };
  job_ = job("a") + ", " + job("b");
  KubeBackend::Options options;
  options.host_ports = {20000, 2 * wiring::kHostPortsPerRank};
  options.context = [](const control::Key&) { return wiring::Context(); };
  Start(std::move(options));
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  const auto execute = [&](const control::Key& key, core::Action action) {
    auto done = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = done->get_future();
    backend_->Execute({key, backend_->Observe(key)->observed.job.uid, std::move(action), {}},
                      [done](Result<control::Revision> result) { done->set_value(std::move(result)); });
    return future.get();
  };
  const auto find_ports = [&](const control::Key& key) { return execute(key, core::TryPods{1, 2}); };
  on_post_ = [](const HttpRequest&) { return Response(201, R"({"metadata": {"resourceVersion": "11"}})"); };
  EXPECT_TRUE(find_ports(kKey).ok());
  EXPECT_TRUE(find_ports({"ml", "b"}).ok()) << "a job that only waits reserves none";
  EXPECT_TRUE(execute(kKey, core::PrepareGang{1, 2, 2}).ok());
  EXPECT_EQ(find_ports({"ml", "b"}).error().code, Code::kExhausted);
  Json stopped = Json::parse(job("a"));
  stopped["metadata"]["resourceVersion"] = "12";
  stopped["status"] = {{"attempt", 1}, {"ledger", {{"suspended", true}}}};
  Line("trainingjobs", "MODIFIED", stopped.dump());
  EXPECT_TRUE(find_ports({"ml", "b"}).ok()) << "a suspended job uses none";
  stopped["metadata"]["resourceVersion"] = "13";
  stopped["status"] = {{"attempt", 1}};
  Line("trainingjobs", "MODIFIED", stopped.dump());
  EXPECT_TRUE(execute(kKey, core::PrepareGang{1, 2, 2}).ok());
  Line("pods", "ADDED", PodOnServer("a-1-0", R"({"nodeName": "n", "containers": []})", 20));
  EXPECT_EQ(find_ports({"ml", "b"}).error().code, Code::kExhausted);
  Json gone = Json::parse(job("a"));
  gone["metadata"]["resourceVersion"] = "21";
  Line("trainingjobs", "DELETED", gone.dump());
  EXPECT_EQ(find_ports({"ml", "b"}).error().code, Code::kExhausted) << "its pod has its grace period";
  Line("pods", "DELETED", PodOnServer("a-1-0", R"({"nodeName": "n", "containers": []})", 22));
  EXPECT_TRUE(find_ports({"ml", "b"}).ok());
}

}  // namespace
}  // namespace ringmaster::kube
