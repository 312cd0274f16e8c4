// SPDX-License-Identifier: Apache-2.0

// KubeBackend over scripted responses: what it does before a response arrives, and after one that no real
// API server gives on demand.
#include <gtest/gtest.h>

#include <future>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/wall_time.h"
#include "tests/unit/kube_watch/fake_server.h"

namespace ringmaster::kube {
namespace {

constexpr const char* kJobOnServer = R"({"metadata": {"name": "a", "namespace": "ml", "uid": "u",
  "resourceVersion": "7", "generation": 1}, "spec": {"framework": "pytorch", "workers": {"replicas": 1,
  "template": {"spec": {"containers": [{"name": "worker", "image": "x"}]}}}}})";

HttpResponse Response(int status, const std::string& body) {
  HttpResponse response;
  response.status = status;
  response.body = body;
  return response;
}

class BackendTest : public testing::Test {
 protected:
  void Start(KubeBackend::Options options) {
    options.clock = WallClock(Now(), WallNow());
    server_.answer = [this](const HttpRequest& request) -> Result<HttpResponse> {
      if (request.method == "PUT") return on_put_(request);
      const bool jobs = request.target.find("/trainingjobs?") != std::string::npos;
      if (request.target.find("limit=") != std::string::npos)
        return Response(200, std::string(R"({"metadata": {"resourceVersion": "10"}, "items": [)") +
                                 (jobs ? kJobOnServer : "") + "]}");
      return Response(404, R"({"kind": "Status", "reason": "NotFound"})");
    };
    backend_ = std::make_unique<KubeBackend>(client_, std::move(options));
    std::promise<void> listed;
    std::atomic<bool> once{false};
    backend_->Subscribe([&](const control::Key& key) {
      if (key == kKey && !once.exchange(true)) listed.set_value();
    });
    backend_->Start();
    listed.get_future().wait();
    server_.Settle();
  }
  void TearDown() override {
    if (backend_) backend_->Stop();
  }

  Result<control::Revision> WriteStatus(const core::Status& status) {
    auto answer = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = answer->get_future();
    backend_->Execute({kKey, "u", core::SetStatus{status}, control::Revision{7}},
                      [answer](Result<control::Revision> result) { answer->set_value(std::move(result)); });
    return future.get();
  }

  const control::Key kKey{"ml", "a"};
  FakeServer server_;
  ApiClient client_{server_};
  std::function<Result<HttpResponse>(const HttpRequest&)> on_put_;
  std::unique_ptr<KubeBackend> backend_;
};

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

}  // namespace
}  // namespace ringmaster::kube
