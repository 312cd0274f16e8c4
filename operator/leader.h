// SPDX-License-Identifier: Apache-2.0

// What only the leader does: decides about jobs and runs their rendezvous. Made when the Lease was won, gone
// before it is handed over; in between the process may end at any moment.
//
//   Leader leader(...);              // asks for the certificates
//   while (...) leader.Advance();    // from the main thread, until running()
//
// Main thread only, but for the callbacks it hands out.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/control/loop.h"
#include "operator/flags.h"
#include "operator/gang_coordinators.h"
#include "operator/identity/certificate_manager.h"
#include "operator/identity/worker_authenticator.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/serve/metrics.h"

namespace ringmaster::operator_main {

// What the backend needs to know of the leader, who comes later and goes earlier. Any thread.
class LeaderHandle {
 public:
  void SetCoordinators(GangCoordinators* coordinators);
  // Runs `use` while the coordinators stand still; not at all when there are none.
  void WithCoordinators(const std::function<void(GangCoordinators&)>& use) const;
  // Fills in the numbers that only the leader knows; null takes them back.
  void SetGaugeSource(std::function<void(serve::Metrics::Gauges&)> fill);
  void FillGauges(serve::Metrics::Gauges& gauges) const;

 private:
  mutable std::mutex mutex_;
  GangCoordinators* coordinators_ = nullptr;
  std::function<void(serve::Metrics::Gauges&)> gauge_source_;
};

class Leader {
 public:
  struct Dependencies {
    kube::ApiClient& api;
    kube::KubeBackend& backend;
    serve::Metrics& metrics;
    LeaderHandle& leader_handle;
    std::function<void()> wake;  // Advance has something to do; any thread
  };

  Leader(Dependencies deps, const Flags& flags, int64_t term);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  // Goes on as far as possible without waiting. An error: this process cannot lead.
  Status Advance();
  bool running() const { return loop_ != nullptr; }

 private:
  Status StartServer(const identity::Certificates& certificates);
  void PublishEndpoint();
  void StartController();
  void ReadGauges(serve::Metrics::Gauges& gauges) const;
  Status CheckWorker(const std::string& job, const std::string& pod, const std::string& uid,
                     int64_t attempt) const;

  Dependencies deps_;
  const Flags flags_;
  const int64_t term_;
  identity::WorkerAuthenticator authenticator_;
  mutable std::mutex mutex_;
  std::optional<identity::Certificates> certificates_;  // newest, not yet taken up
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<GangCoordinators> coordinators_;
  std::unique_ptr<control::Loop> loop_;
  std::unique_ptr<identity::CertificateManager> authority_;  // last: its callback uses the above
};

}  // namespace ringmaster::operator_main
