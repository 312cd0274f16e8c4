// SPDX-License-Identifier: Apache-2.0

// Keeps the certificates in their Secret: makes them when there are none, renews them in time, takes up what
// another operator wrote. Only the leader runs one.
//
// One thread. `on_change` runs on it, whenever the certificates are others than those told last. Certificates
// and bundle may be read from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "operator/identity/certificates.h"
#include "operator/kube/api_client.h"

namespace ringmaster::identity {

class CertificateManager {
 public:
  struct Options {
    std::string namespace_;
    std::string secret_name;
    std::vector<std::string> names;  // what agents call the server
    std::chrono::seconds authority_life = std::chrono::hours(24 * 365);
    std::function<void(const Certificates&)> on_change;
  };

  // `api` must outlive the keeper.
  CertificateManager(kube::ApiClient& api, Options options);
  ~CertificateManager();
  CertificateManager(const CertificateManager&) = delete;
  CertificateManager& operator=(const CertificateManager&) = delete;

 private:
  void Run();
  // One look at the Secret, and a write when something is due. False: try again soon.
  bool Look();
  bool Wait(Duration pause);  // false: told to stop

  kube::ApiClient& api_;
  const Options options_;
  std::optional<Certificates> published_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringmaster::identity
