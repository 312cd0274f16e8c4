// SPDX-License-Identifier: Apache-2.0

// What only the leader runs: the controller, the rendezvous server and their certificates. Created when this
// process wins the Lease, destroyed before it hands the Lease over. The process may end at any moment in
// between.
//
//   Leader leader(...);              // starts to read or create the certificates
//   while (...) leader.Advance();    // from the main thread, until running()
//
// Not thread-safe: the main thread calls it. The callbacks that it passes on run on other threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "operator/control/loop.h"
#include "operator/endpoint.h"
#include "operator/flags.h"
#include "operator/gang_coordinators.h"
#include "operator/identity/certificate_manager.h"
#include "operator/identity/worker_authenticator.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/serve/metrics.h"

namespace ringmaster::operator_main {

// The backend and the metrics live longer than the Leader, and reach it through this handle: it is empty
// before the election and after the Leader ends. Thread-safe.
class LeaderHandle {
 public:
  void SetCoordinators(GangCoordinators* coordinators);
  // Calls `use` unless there is no leader. SetCoordinators waits until `use` returns.
  void WithCoordinators(const std::function<void(GangCoordinators&)>& use) const;
  // `fill` sets the gauges that only the leader knows; null removes it.
  void SetGaugeSource(std::function<void(serve::Metrics::Gauges&)> fill);
  void FillGauges(serve::Metrics::Gauges& gauges) const;
  // `problem` says why agents cannot reach the leader (empty: they can); null removes it.
  void SetProblemSource(std::function<std::string()> problem);
  std::string Problem() const;

 private:
  mutable Mutex mutex_;
  GangCoordinators* coordinators_ RM_GUARDED_BY(mutex_) = nullptr;
  std::function<void(serve::Metrics::Gauges&)> gauge_source_ RM_GUARDED_BY(mutex_);
  std::function<std::string()> problem_source_ RM_GUARDED_BY(mutex_);
};

class Leader {
 public:
  // All of them outlive the Leader.
  struct Dependencies {
    kube::ApiClient& api;
    kube::KubeBackend& backend;
    serve::Metrics& metrics;
    LeaderHandle& handle;
    std::function<bool()> may_write;  // this process still leads; thread-safe
    std::function<void()> wake;       // asks the main thread to call Advance; thread-safe
  };

  Leader(Dependencies deps, const Flags& flags, int64_t term);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  // Starts what can start without waiting. On an error this process cannot lead.
  Status Advance();
  bool running() const { return loop_ != nullptr; }

 private:
  Status StartServer(const identity::Certificates& certificates);
  void PublishEndpoint();
  void StartController();
  void ReadGauges(serve::Metrics::Gauges& gauges) const;
  // Returns Ok if that pod is a worker of `job` in this attempt, as far as the view knows. Errors: kGone: its
  // job is gone; else kForbidden.
  Status CheckWorker(const std::string& job, const std::string& pod, const std::string& uid,
                     int64_t attempt) const;

  Dependencies deps_;
  const Flags flags_;
  const int64_t term_;
  identity::WorkerAuthenticator authenticator_;
  Mutex mutex_;
  std::optional<identity::Certificates> new_certificates_ RM_GUARDED_BY(mutex_);  // not yet in use
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<EndpointPublisher> endpoint_;  // null: no pod address to publish
  std::unique_ptr<GangCoordinators> coordinators_;
  std::unique_ptr<control::Loop> loop_;
  std::unique_ptr<identity::CertificateManager> certificates_;  // last: its callback uses the members above
};

}  // namespace ringmaster::operator_main
