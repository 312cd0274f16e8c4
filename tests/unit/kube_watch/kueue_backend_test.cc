// SPDX-License-Identifier: Apache-2.0

// KubeBackend and Kueue's kinds: what the Workloads and the pods of a job get from its admission.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/decide/decide_kueue.h"
#include "operator/kube/backend/kube_backend.h"
#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

std::string FlavorOnServer(const std::string& name, Json labels, int revision) {
  return Json({{"metadata", {{"name", name}, {"resourceVersion", std::to_string(revision)}}},
               {"spec", {{"nodeLabels", std::move(labels)}}}})
      .dump();
}

// An elastic job in a queue, whose minimum of one worker is admitted in the flavor `spot`.
class KueueBackend : public BackendTest {
 protected:
  void SetUp() override {
    Json job = Json::parse(kNativeJob);
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q";
    job["spec"]["workers"] = {{"replicas", 3}, {"min", 1}, {"max", 3}};
    job_ = job.dump();
    on_get_ = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (!request.target.ends_with("/apis/kueue.x-k8s.io/v1beta2")) return std::nullopt;
      return Response(200, R"({"resources": [{"name": "workloads"}]})");
    };
    KubeBackend::Options options;
    options.context = [](const control::Key&) {
      wiring::Context context;
      context.worker_image = "worker:1";
      return context;
    };
    Start(std::move(options));
    ASSERT_TRUE(Await([&] {
      const auto quota = backend_->Observe(kKey)->observed.quota;
      return quota && quota->api == core::Quota::Api::kRead;
    }));
    Line("resourceflavors", "ADDED", FlavorOnServer("reserved", {{"kind", "reserved"}}, 20));
    Line("resourceflavors", "ADDED", FlavorOnServer("spot", {{"kind", "spot"}}, 21));
    base_ = Created(Asking(1), 22);
    base_["status"] = Json::parse(R"({
      "admission": {"clusterQueue": "cq", "podSetAssignments": [
        {"name": "worker", "count": 1, "flavors": {"nvidia.com/gpu": "spot"}}]},
      "admissionChecks": [{"name": "nodes", "state": "Ready", "podSetUpdates": [
        {"name": "worker", "nodeSelector": {"provisioned-for": "base"}}]}],
      "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
                     {"type": "Admitted", "status": "True", "reason": "Admitted"}]})");
    Line("workloads", "ADDED", base_.dump());
    ASSERT_EQ(backend_->Observe(kKey)->observed.job.granted, 1);
  }
  static core::MakeWorkload Asking(int32_t workers) {
    core::MakeWorkload make;
    make.queue = "q";
    make.pod_sets = {{core::kWorkerSet, workers}};
    return make;
  }
  // Returns the Workload that this action creates, as the server has it then.
  Json Created(core::MakeWorkload make, int revision) {
    auto posted = std::make_shared<Json>();
    on_post_ = [posted](const HttpRequest& request) -> Result<HttpResponse> {
      *posted = Json::parse(request.body);
      return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
    };
    const Result<control::Revision> result = Execute(std::move(make));
    EXPECT_TRUE(result.ok()) << result.error().message;
    Json& metadata = (*posted)["metadata"];
    metadata["namespace"] = "ml";
    metadata["uid"] = "uid-" + std::to_string(revision);
    metadata["resourceVersion"] = std::to_string(revision);
    return *posted;
  }
  static Json SelectorOf(const Json& workload) {
    return workload["spec"]["podSets"][0]["template"]["spec"].value("nodeSelector", Json());
  }

  Json base_;  // the Workload of the minimum, as the server has it
};

// Kueue skips flavors with other labels. What an admission check adds is about the base's nodes only.
TEST_F(KueueBackend, ASurplusIsAskedForInTheFlavorOfTheMinimum) {
  core::MakeWorkload more = Asking(2);
  more.surplus = 1;
  const Json surplus = Created(more, 30);
  EXPECT_EQ(SelectorOf(surplus), (Json{{"kind", "spot"}}));
  Line("workloads", "ADDED", surplus.dump());
  const auto quota = backend_->Observe(kKey)->observed.quota;
  ASSERT_TRUE(quota);
  ASSERT_EQ(quota->workloads.size(), 2U);
  for (const core::Workload& w : quota->workloads) {
    if (w.surplus > 0) {
      EXPECT_FALSE(w.outdated);
    }
  }
}

// Kueue may stop a job between the reservation and its first pod, and it may wait for its quota for long.
TEST_F(KueueBackend, PlacesAreGivenUpWithTheQuota) {
  Line(
      "nodes", "ADDED",
      R"({"metadata": {"name": "n", "resourceVersion": "30", "labels": {"kind": "spot", "provisioned-for": "base"}},
           "status": {"allocatable": {"pods": "1"}, "conditions": [{"type": "Ready", "status": "True"}]}})");
  const auto reserved = [&] { return backend_->Observe(kKey)->observed.fit.reserved; };
  const auto result = Execute(core::ReserveRoom{1, {0}});
  ASSERT_TRUE(result.ok()) << result.error().message << backend_->Observe(kKey)->observed.fit.missing;
  ASSERT_EQ(reserved(), std::vector<int32_t>{0});
  ASSERT_EQ(reserved(), std::vector<int32_t>{0}) << "an observation changes nothing";
  Json stopped = base_;
  stopped["metadata"]["resourceVersion"] = "31";
  stopped["spec"]["active"] = false;
  Json evicted = {{"type", "Evicted"}, {"status", "True"}, {"reason", "Deactivated"}, {"message", "by hand"}};
  stopped["status"]["conditions"].push_back(std::move(evicted));
  const auto held = [&] { return core::HeldByQuota(backend_->TakeTurn(kKey)->observed); };
  Line("workloads", "MODIFIED", stopped.dump());
  ASSERT_TRUE(Await(held));
  base_["metadata"]["resourceVersion"] = "32";
  Line("workloads", "MODIFIED", base_.dump());
  ASSERT_TRUE(Await([&] { return !held(); }));
  EXPECT_TRUE(reserved().empty());
}

// The next Workload of the whole job may get any flavor.
TEST_F(KueueBackend, AnotherWorkloadMayHaveAnyFlavor) {
  EXPECT_TRUE(SelectorOf(Created(Asking(2), 30)).is_null());
}

}  // namespace
}  // namespace ringmaster::kube
