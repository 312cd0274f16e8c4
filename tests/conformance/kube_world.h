// SPDX-License-Identifier: Apache-2.0

// A real API server with fake nodes (e2e/cluster) for tests in C++: its own cluster for the whole process, or
// the one that RINGMASTER_TEST_KUBECONFIG names; a namespace for each World. Functions CHECK what they need:
// a test cannot go on without it.
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

class World {
 public:
  World();
  ~World();  // the namespace goes, with everything in it

  kube::ApiClient& client() { return *client_; }
  const std::string& space() const { return space_; }

  // A backend over it, with what a worker needs to be rendered.
  kube::KubeBackend::Options BackendOptions() const;

  // One worker, valid, in this namespace; tests change it and hand it to Submit.
  api::TrainingJob Job(const std::string& name) const;
  control::Key Submit(const api::TrainingJob& job);

  // ask(done) with an ApiClient::Done; waits for the answer.
  template <class Ask>
  Result<Json> Wait(Ask ask) {
    auto answer = std::make_shared<std::promise<Result<Json>>>();
    auto future = answer->get_future();
    ask([answer](Result<Json> result) { answer->set_value(std::move(result)); });
    return future.get();
  }
  Result<Json> Get(const kube::Resource& resource, const std::string& name);
  Result<Json> Create(const kube::Resource& resource, const Json& object);

 private:
  void InstallDefinition();
  void MakeNamespace();

  std::unique_ptr<kube::HttpClient> http_;
  std::unique_ptr<kube::HttpClient> unresponsive_pods_;
  std::unique_ptr<kube::ApiClient> client_;
  std::string space_;
  std::vector<std::string> jobs_;
};

// Looks again and again; false after a generous limit.
bool Eventually(const std::function<bool()>& condition);

}  // namespace ringmaster::conformance
