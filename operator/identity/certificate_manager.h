// SPDX-License-Identifier: Apache-2.0

// Keeps the rendezvous certificates in their Secret: creates them, renews them before they expire, and takes
// over what another operator wrote. Only the leader runs one.
//
// Runs one thread, which calls `on_change` whenever the certificates differ from those of the last call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "operator/identity/certificates.h"
#include "operator/kube/api_client.h"

namespace ringmaster::identity {

class CertificateManager {
 public:
  struct Options {
    std::string namespace_;
    std::string secret_name;
    std::vector<std::string> names;  // host names by which agents reach the server
    std::chrono::seconds authority_life = std::chrono::hours(24 * 365);
    std::function<void(const Certificates&)> on_change;
  };

  // REQUIRES: `api` outlives the manager.
  CertificateManager(kube::ApiClient& api, Options options);
  ~CertificateManager();
  CertificateManager(const CertificateManager&) = delete;
  CertificateManager& operator=(const CertificateManager&) = delete;

 private:
  void Run();
  // Reads the Secret, and writes it when something is due. Returns false if that failed: try again soon.
  bool Sync();
  // Returns false when the manager stops.
  bool Wait(Duration pause);

  kube::ApiClient& api_;
  const Options options_;
  std::optional<Certificates> published_;  // those of the last on_change; used by thread_ only
  Mutex mutex_;
  CondVar stopping_;
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringmaster::identity
