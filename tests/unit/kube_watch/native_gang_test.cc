// SPDX-License-Identifier: Apache-2.0

// Kubernetes' own gangs: which version of their API the operator uses, and how it changes immutable ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

// Native gangs in the versions that the API server serves.
class NativeGang : public BackendTest {
 protected:
  // `all` are listed, and gangs are served by `served`, if that is not empty.
  void StartWith(const std::vector<std::string>& all, const std::string& served,
                 const char* gang = "native") {
    Json job = Json::parse(kJobOnServer);
    job["spec"]["scheduling"]["gang"] = gang;
    job_ = job.dump();
    Json versions = Json::array();
    for (const std::string& version : all) versions.push_back({{"version", version}});
    objects_ = served == "v1alpha1" ? "workloads" : "podgroups";
    on_get_ = [this, served, group = Json({{"versions", versions}}).dump()](
                  const HttpRequest& request) -> std::optional<HttpResponse> {
      const std::string path = "/apis/scheduling.k8s.io";
      if (upgraded_) return Upgraded(request);
      if (request.target == path) return Response(200, group);
      if (request.target == path + "/" + served)
        return Response(200, Json({{"resources", {{{"name", objects_}}}}}).dump());
      if (request.target.find(objects_ + "?") != std::string::npos &&
          request.target.find("limit=") != std::string::npos)
        return Response(200, R"({"metadata": {"resourceVersion": "10"}, "items": []})");
      if (request.target.find(objects_ + "/a-1") != std::string::npos) return Response(200, group_.dump());
      return std::nullopt;
    };
    on_post_ = [this](const HttpRequest& request) -> Result<HttpResponse> {
      const std::string plural = request.target.substr(0, request.target.find('?'));
      requests_.push_back("POST " + plural.substr(plural.rfind('/') + 1));
      if (!plural.ends_with(objects_)) return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
      if (!group_.is_null()) return Response(409, R"({"kind": "Status", "reason": "AlreadyExists"})");
      posted_ = Json::parse(request.body);
      group_ = posted_;
      return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
    };
    // As the API server: policies are immutable.
    on_change_ = [this](const HttpRequest& request) -> Result<HttpResponse> {
      if (request.method == "DELETE") {
        requests_.push_back("DELETE");
        if (!protected_) group_ = nullptr;
        return Response(200, R"({"kind": "Status", "status": "Success"})");
      }
      const Json body = Json::parse(request.body);
      if (request.target.find(objects_) == std::string::npos)
        return Response(200, R"({"metadata": {"resourceVersion": "12"}})");
      if (body.contains("spec") && body["spec"] != group_["spec"]) {
        requests_.push_back("refused");
        return Response(422, R"({"kind": "Status", "reason": "Invalid", "message": "field is immutable"})");
      }
      requests_.push_back("PATCH");
      group_["metadata"]["annotations"].update(body["metadata"]["annotations"]);
      return Response(200, R"({"metadata": {"resourceVersion": "12"}})");
    };
    KubeBackend::Options options;
    options.context = [](const control::Key&) { return wiring::Context(); };
    Start(std::move(options));
    EXPECT_TRUE(Await([&] { return backend_->Synced(); }));
  }
  // The server of Kubernetes 1.37 in place of an older one.
  static std::optional<HttpResponse> Upgraded(const HttpRequest& request) {
    const std::string path = "/apis/scheduling.k8s.io";
    if (request.target == path)
      return Response(200, R"({"versions": [{"version": "v1"}, {"version": "v1beta1"}]})");
    if (request.target == path + "/v1beta1")
      return Response(200, R"({"resources": [{"name": "podgroups"}]})");
    if (request.target.find(path + "/v1beta1/podgroups?") != std::string::npos)
      return Response(200, R"({"metadata": {"resourceVersion": "10"}, "items": []})");
    if (request.target.find(path + "/v1alpha") != std::string::npos) return Response(404, "{}");
    return std::nullopt;
  }
  Json MinCount() const {
    const Json& spec = group_["spec"];
    return spec.contains("podGroups") ? spec["podGroups"][0]["policy"]["gang"]["minCount"]
                                      : spec["schedulingPolicy"]["gang"]["minCount"];
  }

  std::string objects_;  // the collection of the gangs
  Json group_;           // the object of the gang on the server; null: none
  Json posted_;
  bool protected_ = false;  // the server keeps the object of the gang
  std::atomic<bool> upgraded_{false};
  std::vector<std::string> requests_;
};

TEST_F(NativeGang, IsCreatedInTheNewestVersionThatIsServed) {
  StartWith({"v1", "v1beta1", "v1alpha3", "v1alpha1"}, "v1alpha3", "auto");  // only classes in v1beta1
  EXPECT_EQ(backend_->Observe(kKey)->observed.provider, core::GangProvider::kScheduler);
  ASSERT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
  EXPECT_EQ(posted_["apiVersion"], "scheduling.k8s.io/v1alpha3");
  EXPECT_EQ(posted_["kind"], "PodGroup");
  EXPECT_EQ(MinCount(), 2);
  EXPECT_TRUE(backend_->Observe(kKey)->observed.prepared.has_value());
}

TEST_F(NativeGang, IsAWorkloadInKubernetes135) {
  StartWith({"v1", "v1alpha1"}, "v1alpha1");
  ASSERT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
  EXPECT_EQ(posted_["apiVersion"], "scheduling.k8s.io/v1alpha1");
  EXPECT_EQ(posted_["kind"], "Workload");
  EXPECT_EQ(MinCount(), 2);
}

TEST_F(NativeGang, OfAnotherSizeReplacesAnImmutableOne) {
  for (const char* version : {"v1alpha1", "v1alpha2"}) {
    requests_.clear();
    group_ = nullptr;
    StartWith({"v1", version}, version);
    ASSERT_TRUE(Execute(core::PrepareGang{1, 4, 4}).ok());
    requests_.clear();
    ASSERT_TRUE(Execute(core::PrepareGang{1, 4, 3}).ok());
    const std::string post = "POST " + objects_;
    EXPECT_THAT(requests_, testing::IsSupersetOf({std::string("refused"), std::string("DELETE"), post}));
    EXPECT_EQ(MinCount(), 3);
    EXPECT_EQ(backend_->Observe(kKey)->observed.prepared, (core::PrepareGang{1, 4, 3}));
    backend_->Stop();
    backend_.reset();
  }
}

// Kubernetes keeps a group for a while after its last pod.
TEST_F(NativeGang, ThatIsBeingDeletedIsReplacedLater) {
  StartWith({"v1", "v1alpha2"}, "v1alpha2");
  ASSERT_TRUE(Execute(core::PrepareGang{1, 4, 4}).ok());
  protected_ = true;
  const auto refused = Execute(core::PrepareGang{1, 4, 3});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnavailable) << refused.error().message;
  protected_ = false;
  EXPECT_TRUE(Execute(core::PrepareGang{1, 4, 3}).ok());
  EXPECT_EQ(MinCount(), 3);
}

// Its pods cannot join another one.
TEST_F(NativeGang, ThatIsImmutableKeepsItsSizeWhileItsPodsLive) {
  StartWith({"v1", "v1alpha2"}, "v1alpha2");
  ASSERT_TRUE(Execute(core::PrepareGang{1, 4, 4}).ok());
  Line("pods", "ADDED", PodOnServer("a-1-0", R"({"containers": []})", 20));
  requests_.clear();
  ASSERT_TRUE(Execute(core::PrepareGang{1, 4, 3}).ok());
  EXPECT_THAT(requests_, testing::Not(testing::Contains("DELETE")));
  EXPECT_EQ(MinCount(), 4);
  EXPECT_EQ(backend_->Observe(kKey)->observed.prepared, (core::PrepareGang{1, 4, 3}));
}

// The attempt stays native, and its object is created again in the new version.
TEST_F(NativeGang, FollowsAnUpgradeOfTheCluster) {
  StartWith({"v1", "v1alpha1"}, "v1alpha1");
  ASSERT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
  EXPECT_EQ(posted_["kind"], "Workload");
  upgraded_ = true;
  objects_ = "podgroups";
  group_ = nullptr;
  server_.End(server_.AwaitStreamOf("scheduling.k8s.io/v1alpha1"),
              Response(404, R"({"reason": "NotFound"})"));
  server_.AwaitStreamOf("scheduling.k8s.io/v1beta1/podgroups");
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
  ASSERT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
  EXPECT_EQ(posted_["apiVersion"], "scheduling.k8s.io/v1beta1");
  EXPECT_EQ(posted_["kind"], "PodGroup");
}

TEST_F(NativeGang, OfAnUnknownVersionIsRefused) {
  StartWith({"v1", "v1beta2"}, "v1beta2");
  const auto refusal = backend_->Observe(kKey)->observed.preflight;
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, core::RefusalKind::kNoGangProvider);
  EXPECT_EQ(
      refusal->message,
      "the API server serves scheduling.k8s.io/v1beta2, and of its gangs this operator knows v1alpha1 to "
      "v1beta1: upgrade the operator, or set spec.scheduling.gang to gate");
}

// Whether a gang that is withdrawn with these pods makes `auto` choose another provider.
class TornGang : public NativeGang {
 protected:
  core::GangProvider NextProvider(const char* gang, bool second_has_a_node) {
    StartWith({"v1", "v1beta1"}, "v1beta1", gang);
    AttemptIs(1, 12);
    EXPECT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
    for (int rank = 0; rank < 2; ++rank) {
      const bool bound = rank == 0 || second_has_a_node;
      Json pod = Json::parse(PodOnServer(fmt::format("a-1-{}", rank), R"({"containers": []})", 20 + rank));
      pod["metadata"]["labels"]["ringmaster.dev/rank"] = std::to_string(rank);
      if (bound) pod["spec"]["nodeName"] = "n";
      pod["status"]["conditions"] = Json::array({{{"type", "PodScheduled"},
                                                  {"status", bound ? "True" : "False"},
                                                  {"reason", bound ? "" : "Unschedulable"},
                                                  {"lastTransitionTime", "2020-01-01T00:00:00Z"}}});
      Line("pods", "ADDED", pod.dump());
    }
    on_put_ = [](const HttpRequest&) -> Result<HttpResponse> {
      return Response(200, R"({"metadata": {"resourceVersion": "30"}})");
    };
    core::SetStatus write;
    write.status.ledger.attempt = 2;
    write.status.ledger.withdrawals = 1;
    EXPECT_TRUE(Execute(write).ok());
    AttemptIs(2, 30);
    EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
    return backend_->Observe(kKey)->observed.provider;
  }
  void AttemptIs(int attempt, int revision) {
    Json job = Json::parse(job_);
    job["metadata"]["resourceVersion"] = std::to_string(revision);
    job["status"] = {{"phase", "Pending"}, {"attempt", attempt}, {"ledger", {{"gangSize", 2}}}};
    Line("trainingjobs", "MODIFIED", job.dump());
  }
};

TEST_F(TornGang, LeavesAutoTheGate) { EXPECT_EQ(NextProvider("auto", false), core::GangProvider::kGate); }

TEST_F(TornGang, ByNameStays) { EXPECT_EQ(NextProvider("native", false), core::GangProvider::kScheduler); }

TEST_F(TornGang, IsNotOneThatIsWhole) {
  EXPECT_EQ(NextProvider("auto", true), core::GangProvider::kScheduler);
}

TEST_F(NativeGang, OfAnUnknownVersionLeavesAutoTheGate) {
  StartWith({"v1", "v1beta2"}, "v1beta2", "auto");
  EXPECT_FALSE(backend_->Observe(kKey)->observed.preflight.has_value());
  EXPECT_EQ(backend_->Observe(kKey)->observed.provider, core::GangProvider::kGate);
}

}  // namespace
}  // namespace ringmaster::kube
