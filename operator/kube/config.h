// SPDX-License-Identifier: Apache-2.0

// The API server's address and our credentials, from kubeconfig files or from the pod's service account.
// Loading reads files and uses no network. Secrets in these structs must not be logged.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::kube {

struct KeyPair {
  std::string cert_pem;
  std::string key_pem;
};

// Returns the current credentials. Thread-safe. Token may block while a plugin runs.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual Result<std::string> Token() = 0;  // the bearer token; empty: none is needed
  virtual void Expire() {}                  // the server rejected the last token: get a new one next time
  // The client certificate that came with the last token, checked. It applies to new connections.
  virtual std::optional<KeyPair> Certificate() { return std::nullopt; }
};

struct ClientConfig {
  std::string server;  // https://host:port, without a path unless the file has one
  std::string tls_server_name;
  std::string ca_pem;  // empty: the system's authorities
  bool insecure_skip_tls_verify = false;
  std::string client_cert_pem;
  std::string client_key_pem;
  std::string proxy_url;  // empty: HTTPS_PROXY and NO_PROXY decide
  std::shared_ptr<TokenSource> token;
  std::string namespace_ = "default";
  std::string user_agent = "ringmaster-operator";
  std::string impersonate_user;
};

struct ConfigOptions {
  std::vector<std::string>
      kubeconfig_paths{};        // explicit files; empty: $KUBECONFIG (several, ':'), else ~/.kube/config
  std::string context{};         // empty: current-context
  bool allow_in_cluster = true;  // when no file is given or found
};

// Merges files as kubectl does: the first file that has an entry wins, and relative paths start at their
// file. Errors: kInvalid with file, line and what is missing.
Result<ClientConfig> LoadConfig(const ConfigOptions& options);

}  // namespace ringmaster::kube
