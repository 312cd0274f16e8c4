// SPDX-License-Identifier: Apache-2.0

// TestCluster: a real API server with fake nodes (e2e/cluster) for tests in C++. The process starts one
// cluster, or uses the one that RINGMASTER_TEST_KUBECONFIG names. Each TestCluster has a namespace. Functions
// CHECK their preconditions, since a test cannot continue without them.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/training_job.h"
#include "operator/kube/api_client.h"
#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::conformance {

class TestCluster {
 public:
  TestCluster();
  ~TestCluster();  // deletes the namespace with everything in it

  kube::ApiClient& client() { return *client_; }
  const std::string& space() const { return space_; }

  // Options for a backend on this API server, which can render workers.
  kube::KubeBackend::Options BackendOptions() const;

  // Returns a valid job with one worker in this namespace. Tests change it and pass it to Submit.
  api::TrainingJob Job(const std::string& name) const;
  control::Key Submit(const api::TrainingJob& job);

  // Calls ask(done) with an ApiClient::Done and waits for the answer.
  template <class Ask>
  Result<Json> Wait(Ask ask) {
    auto answer = std::make_shared<std::promise<Result<Json>>>();
    auto future = answer->get_future();
    ask([answer](Result<Json> result) { answer->set_value(std::move(result)); });
    return future.get();
  }
  Result<Json> Get(const kube::Resource& resource, const std::string& name);
  Result<Json> Create(const kube::Resource& resource, const Json& object);
  // Installs reduced definitions of Kueue's kinds: the test does what Kueue would do.
  void InstallKueue();

 private:
  void InstallDefinition();
  void MakeNamespace();

  std::unique_ptr<kube::HttpClient> http_;
  std::unique_ptr<kube::HttpClient> unresponsive_pods_;
  std::unique_ptr<kube::ApiClient> client_;
  std::string space_;
  std::vector<std::string> jobs_;
};

// Polls until the condition holds. Returns false after a long time limit.
bool Eventually(const std::function<bool()>& condition);

}  // namespace ringmaster::conformance
