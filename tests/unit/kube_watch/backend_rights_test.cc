// SPDX-License-Identifier: Apache-2.0

// KubeBackend with rights in some namespaces only.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>

#include "operator/kube/backend/kube_backend.h"
#include "tests/unit/kube_watch/backend_fixture.h"

namespace ringmaster::kube {
namespace {

TEST_F(BackendTest, ANamespaceThatIsDeniedDoesNotStopTheOthers) {
  std::atomic<bool> denied = true;
  on_get_ = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    const bool list = request.target.find("limit=") != std::string::npos;
    if (request.target.find("/namespaces/gone/") != std::string::npos && list) {
      // All but the jobs.
      if (denied && request.target.find("/trainingjobs?") == std::string::npos)
        return Response(403, R"({"reason": "Forbidden", "message": "pods is forbidden"})");
      Json job = Json::parse(kJobOnServer);
      job["metadata"]["namespace"] = "gone";
      const bool jobs = request.target.find("/trainingjobs?") != std::string::npos;
      return Response(200, DumpJson({{"metadata", {{"resourceVersion", "10"}}},
                                     {"items", jobs ? Json::array({job}) : Json::array()}}));
    }
    return std::nullopt;
  };
  namespace_ = R"({"metadata": {"name": "ml", "resourceVersion": "3"}},
                  {"metadata": {"name": "gone", "resourceVersion": "4"}})";
  KubeBackend::Options options;
  options.namespaces = {"gone", "ml"};
  options.watch.backoff_first = milliseconds(2);
  options.watch.backoff_last = milliseconds(4);
  Start(std::move(options));
  ASSERT_TRUE(Await([&] { return backend_->Synced(); }));
  EXPECT_TRUE(Await([&] { return backend_->Problems().empty(); })) << backend_->Problems().front();
  EXPECT_EQ(backend_->TakeCensus().namespaces_denied, 1);
  EXPECT_TRUE(backend_->Observe(kKey).has_value());
  const control::Key other{"gone", "a"};
  EXPECT_FALSE(backend_->Observe(other).has_value()) << "its pods are not known";

  auto decided = std::make_shared<std::promise<void>>();
  auto once = std::make_shared<std::atomic<bool>>(false);
  backend_->Subscribe([=, this](const control::Key& key) {
    if (key == other && backend_->Observe(other) && !once->exchange(true)) decided->set_value();
  });
  denied = false;
  decided->get_future().wait();
  EXPECT_TRUE(Await([&] { return backend_->TakeCensus().namespaces_denied == 0; }));

  // Nothing of it remains when it is gone.
  Line("namespaces", "DELETED", R"({"metadata": {"name": "gone", "resourceVersion": "20"}})");
  EXPECT_TRUE(Await([&] { return !backend_->Observe(other).has_value(); }));
  EXPECT_TRUE(backend_->Observe(kKey).has_value());
}

TEST_F(BackendTest, WithoutRightsInAnyNamespaceItIsNotReady) {
  on_get_ = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.target.find("/namespaces/ml/pods?") == std::string::npos) return std::nullopt;
    return Response(403, R"({"reason": "Forbidden", "message": "pods is forbidden"})");
  };
  KubeBackend::Options options;
  options.namespaces = {"ml"};
  Start(std::move(options));
  EXPECT_TRUE(Await([&] {
    const auto problems = backend_->Problems();
    return problems.size() == 1 && problems[0].find("pods is forbidden") != std::string::npos;
  }));
}

}  // namespace
}  // namespace ringmaster::kube
