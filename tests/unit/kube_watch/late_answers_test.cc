// SPDX-License-Identifier: Apache-2.0

// KubeBackend: jobs that are deleted, and created again under their names, before a request about them is
// answered or an observation of them ends.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <string>
#include <utility>

#include "operator/kube/backend/kube_backend.h"
#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

class LateAnswers : public BackendTest {
 protected:
  void Start() {
    KubeBackend::Options options;
    options.context = [this](const control::Key&) {
      if (during_observation_) std::exchange(during_observation_, nullptr)();
      return wiring::Context();
    };
    BackendTest::Start(std::move(options));
    ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  }

  // The watch delivers this at once, in the middle of what the backend does.
  void Deliver(const std::string& resource, const std::string& type, const std::string& object) {
    server_.AwaitStreamOf("/" + resource + "?")
        ->handlers.on_line(R"({"type": ")" + type + R"(", "object": )" + object + "}");
  }
  std::string JobOf(const std::string& uid, int revision) const {
    Json job = Json::parse(job_);
    job["metadata"]["uid"] = uid;
    job["metadata"]["resourceVersion"] = std::to_string(revision);
    return job.dump();
  }
  // The next job of the name exists, and has a coordinator.
  void Replace() {
    Deliver("trainingjobs", "DELETED", JobOf("u", 20));
    Deliver("trainingjobs", "ADDED", JobOf("next", 21));
    backend_->Execute({kKey, "next", kOrder, {}},
                      [](const Result<control::Revision>& result) { EXPECT_TRUE(result.ok()); });
  }
  void ExpectOnlyTheNextJobIsKnown() const {
    const core::Observed seen = backend_->Observe(kKey)->observed;
    EXPECT_EQ(seen.job.uid, "next");
    EXPECT_EQ(seen.order, kOrder) << "the late answer has replaced the state of the next job";
    EXPECT_FALSE(seen.prepared.has_value());
  }

  const core::SetGang kOrder{1, 2, 2, 2};
  std::function<void()> during_observation_;
};

TEST_F(LateAnswers, ThatObjectsExistAreDropped) {
  Start();
  bool replaced = false;
  on_post_ = [&](const HttpRequest&) {
    if (!std::exchange(replaced, true)) Replace();
    return Response(201, R"({"metadata": {"resourceVersion": "11"}})");
  };
  EXPECT_TRUE(Execute(core::PrepareGang{1, 2, 2}).ok());
  EXPECT_TRUE(replaced);
  ExpectOnlyTheNextJobIsKnown();
}

TEST_F(LateAnswers, ThatPodsWouldBeAdmittedAreDropped) {
  namespace_ = R"({"metadata": {"name": "ml", "resourceVersion": "5",
    "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})";
  Start();
  on_post_ = [&](const HttpRequest&) {
    Replace();
    return Response(201, "{}");
  };
  EXPECT_TRUE(Execute(core::TryPods{1, 2}).ok());
  ExpectOnlyTheNextJobIsKnown();
}

// The report of a coordinator that has finished the first job would let the next one succeed.
TEST_F(LateAnswers, ReportsOfTheFirstJobAreDropped) {
  job_ = kNativeJob;
  Start();
  rendezvous::Report report;
  report.phase = rendezvous::GangPhase::kFinished;
  backend_->SetReport(kKey, "u", report);
  EXPECT_TRUE(backend_->Observe(kKey)->observed.report.has_value());
  Replace();
  EXPECT_FALSE(backend_->Observe(kKey)->observed.report.has_value());
  backend_->SetReport(kKey, "u", report);
  EXPECT_FALSE(backend_->Observe(kKey)->observed.report.has_value());
  EXPECT_EQ(backend_->Observe(kKey)->observed.order, kOrder);
}

// Its agent would ask for ever to take part.
TEST_F(LateAnswers, APodWhoseJobIsGoneIsLeftBehind) {
  Start();
  const auto left = [&](const std::string& uid) { return backend_->IsLeftBehind(kKey, "a-1-0", uid); };
  EXPECT_FALSE(left("uid-a-1-0")) << "the view may be behind";
  Line("pods", "ADDED", PodOnServer("a-1-0", R"({"nodeName": "n", "containers": []})", 15));
  EXPECT_FALSE(left("uid-a-1-0"));
  Deliver("trainingjobs", "DELETED", JobOf("u", 20));
  EXPECT_TRUE(left("uid-a-1-0"));
  Deliver("trainingjobs", "ADDED", JobOf("next", 21));
  EXPECT_TRUE(left("uid-a-1-0"));
  EXPECT_FALSE(left("uid-of-another-pod"));
}

// A job that is deleted while it is observed would wait for room for ever, before all others.
TEST_F(LateAnswers, AJobThatIsGoneDoesNotWaitForRoom) {
  const auto job = [](const std::string& name, int workers, int64_t generation) {
    Json object = Json::parse(kJobOnServer);
    object["metadata"]["name"] = name;
    object["metadata"]["uid"] = "uid-" + name;
    object["metadata"]["generation"] = generation;
    object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z";
    object["metadata"]["resourceVersion"] = std::to_string(10 * generation);
    object["status"]["attempt"] = 1;
    object["spec"]["scheduling"]["gang"] = "gate";
    object["spec"]["workers"]["replicas"] = workers;
    object["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3";
    return object.dump();
  };
  job_ = job("a", 2, 1) + ", " + job("b", 1, 1);
  Start();
  for (const std::string node : {"n1", "n2"})
    Line("nodes", "ADDED",
         R"({"metadata": {"name": ")" + node + R"(", "resourceVersion": "11"}, "status": {"allocatable":
           {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}})");
  // It takes n2, and will end: it belongs to a third job.
  Json pod = Json::parse(PodOnServer(
      "c-1-0",
      R"({"nodeName": "n2", "containers": [{"name": "worker", "resources": {"requests": {"cpu": "3"}}}]})",
      12));
  pod["metadata"]["labels"]["ringmaster.dev/job"] = pod["metadata"]["ownerReferences"][0]["name"] = "c";
  Line("pods", "ADDED", pod.dump());
  const auto missing = [&](const std::string& name) {
    return backend_->TakeTurn({"ml", name})->observed.fit.missing;
  };
  EXPECT_NE(backend_->Observe({"ml", "a"})->observed.fit.missing, "");
  EXPECT_EQ(backend_->Observe({"ml", "b"})->observed.fit.missing, "") << "an observation takes no turn";
  EXPECT_NE(missing("a"), "");
  EXPECT_EQ(missing("b"), "the room is kept for ml/a, which comes first");
  Line("trainingjobs", "MODIFIED", job("a", 2, 2));
  during_observation_ = [&] { Deliver("trainingjobs", "DELETED", job("a", 2, 3)); };
  EXPECT_NE(missing("a"), "");
  EXPECT_FALSE(during_observation_) << "the job was not deleted in between";
  EXPECT_FALSE(backend_->Observe(kKey).has_value());
  EXPECT_EQ(missing("b"), "");
}

}  // namespace
}  // namespace ringmaster::kube
