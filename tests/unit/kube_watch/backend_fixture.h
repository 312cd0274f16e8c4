// SPDX-License-Identifier: Apache-2.0

// A KubeBackend over scripted responses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/wall_time.h"
#include "tests/unit/kube_watch/fake_server.h"

namespace ringmaster::kube {

inline constexpr const char* kJobOnServer = R"({"metadata": {"name": "a", "namespace": "ml", "uid": "u",
  "resourceVersion": "7", "generation": 1}, "spec": {"framework": "pytorch", "launch": {"kind": "none"},
  "workers": {"replicas": 2,
  "template": {"spec": {"containers": [{"name": "worker", "image": "x"}]}}}}})";

inline constexpr const char* kNativeJob = R"({"metadata": {"name": "a", "namespace": "ml", "uid": "u",
  "resourceVersion": "7", "generation": 1}, "spec": {"framework": "native", "workers": {"replicas": 1},
  "training": {"model": {"kind": "mlp", "layers": 1, "width": 16}, "data": {"kind": "idx", "path": "/data"},
  "batch": {"samplesPerStep": 64, "microBatches": 64}, "steps": 10,
  "optimizer": {"kind": "sgd", "learningRate": "0.1"}}},
  "status": {"phase": "Running", "attempt": 1, "ledger": {"stepped": true}}})";

inline std::string PodOnServer(const std::string& name, const std::string& spec, int revision) {
  return R"({"metadata": {"name": ")" + name + R"(", "namespace": "ml", "uid": "uid-)" + name +
         R"(", "resourceVersion": ")" + std::to_string(revision) +
         R"(", "labels": {"ringmaster.dev/job": "a", "ringmaster.dev/attempt": "1",
         "ringmaster.dev/rank": "0"}, "ownerReferences": [{"apiVersion": "ringmaster.dev/v1alpha1",
         "kind": "TrainingJob", "name": "a", "uid": "u", "controller": true}]},
         "spec": )" +
         spec + R"(, "status": {"phase": "Pending"}})";
}

inline HttpResponse Response(int status, const std::string& body) {
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
      if (request.method == "POST") return on_post_(request);
      if (request.method == "PATCH" || request.method == "DELETE") return on_change_(request);
      if (on_get_)
        if (auto found = on_get_(request)) return *std::move(found);
      if (request.target.find("/namespaces/volcano-system/leases/volcano") != std::string::npos)
        return lease_.empty() ? Response(404, R"({"kind": "Status", "reason": "NotFound"})")
                              : Response(200, lease_);
      const bool jobs = request.target.find("/trainingjobs?") != std::string::npos;
      const bool spaces = request.target.find("/namespaces?") != std::string::npos;
      const bool classes = request.target.find("/priorityclasses?") != std::string::npos;
      for (const auto& [group, served] : groups_) {
        if (request.target.find("/apis/" + group) == std::string::npos) continue;
        if (!served) break;
        if (request.target.find("limit=") == std::string::npos)
          return Response(200, R"({"resources": [{"name": "podgroups"}]})");
      }
      const bool group = request.target.find("podgroups?") != std::string::npos;
      if (request.target.find("limit=") != std::string::npos && (!group || Served(request.target)))
        return Response(200, std::string(R"({"metadata": {"resourceVersion": "10"}, "items": [)") +
                                 (jobs      ? std::string(job_)
                                  : spaces  ? namespace_
                                  : classes ? priority_classes_
                                            : "") +
                                 "]}");
      return Response(404, R"({"kind": "Status", "reason": "NotFound"})");
    };
    backend_ = std::make_unique<KubeBackend>(client_, std::move(options));
    auto listed = std::make_shared<std::promise<void>>();
    auto once = std::make_shared<std::atomic<bool>>(false);
    backend_->Subscribe([listed, once](const control::Key&) {
      if (!once->exchange(true)) listed->set_value();
    });
    backend_->Start();
    listed->get_future().wait();
    // The list of the jobs may be handled before others are asked for.
    for (const char* resource : {"/nodes?", "/namespaces?", "/priorityclasses?"})
      server_.AwaitStreamOf(resource);
    server_.Settle();
  }
  void TearDown() override {
    if (backend_) backend_->Stop();
  }

  bool Served(const std::string& target) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
      return group.second && target.find("/apis/" + group.first) != std::string::npos;
    });
  }
  bool Await(const std::function<bool()>& condition) {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= limit) return false;
      never.wait_for(lock, std::chrono::milliseconds(10));
    }
    return true;
  }

  Result<control::Revision> WriteStatus(const core::Status& status) {
    auto answer = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = answer->get_future();
    backend_->Execute({kKey, "u", core::SetStatus{status}, control::Revision{7}},
                      [answer](Result<control::Revision> result) { answer->set_value(std::move(result)); });
    return future.get();
  }

  // Returns the answer to an action of the job whose uid is "u".
  Result<control::Revision> Execute(core::Action action) {
    auto done = std::make_shared<std::promise<Result<control::Revision>>>();
    auto future = done->get_future();
    backend_->Execute({kKey, "u", std::move(action), control::Revision{7}},
                      [done](Result<control::Revision> result) { done->set_value(std::move(result)); });
    return future.get();
  }
  // Sends a line to the watch of this resource.
  void Line(const std::string& resource, const std::string& type, const std::string& object) {
    for (size_t i = 0;; ++i) {
      const auto stream = server_.AwaitStream(i);
      if (stream->target.find("/" + resource + "?") == std::string::npos) continue;
      server_.Line(stream, R"({"type": ")" + type + R"(", "object": )" + object + "}");
      return server_.Settle();
    }
  }

  const control::Key kKey{"ml", "a"};
  std::string job_ = kJobOnServer;
  FakeServer server_;
  ApiClient client_{server_};
  std::function<Result<HttpResponse>(const HttpRequest&)> on_put_;
  std::function<Result<HttpResponse>(const HttpRequest&)> on_post_;
  std::function<Result<HttpResponse>(const HttpRequest&)> on_change_;      // PATCH and DELETE
  std::function<std::optional<HttpResponse>(const HttpRequest&)> on_get_;  // before all others
  std::string namespace_;                            // the namespace on the server; empty: none
  std::string priority_classes_;                     // on the server
  std::string lease_;                                // of Volcano's scheduler; empty: none
  std::map<std::string, std::atomic<bool>> groups_;  // whether these groups of APIs are served
  std::unique_ptr<KubeBackend> backend_;
};

}  // namespace ringmaster::kube
