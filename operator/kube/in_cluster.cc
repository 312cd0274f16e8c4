// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/in_cluster.h"

#include "base/file.h"
#include "operator/kube/environment.h"
#include "operator/kube/pem.h"
#include "operator/kube/token_file.h"

namespace ringmaster::kube {

bool InCluster() { return !Environment("KUBERNETES_SERVICE_HOST").empty(); }

Result<ClientConfig> LoadInCluster(const std::string& folder) {
  const std::string host = Environment("KUBERNETES_SERVICE_HOST");
  std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty()) return Error{Code::kInvalid, "KUBERNETES_SERVICE_HOST is not set: not running in a pod"};
  if (port.empty()) port = "443";
  ClientConfig config;
  config.server =
      fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
  Result<std::string> ca = ReadFile(folder + "/ca.crt", 4 << 20);
  if (!ca.ok()) return ca.error().In("service account (is automountServiceAccountToken false?)");
  if (Status status = CheckCertificates(*ca); !status.ok()) return status.error().In(folder + "/ca.crt");
  config.ca_pem = std::move(ca).value();
  config.token = MakeTokenFile(folder + "/token");
  if (const Result<std::string> token = config.token->Token(); !token.ok())
    return token.error().In("service account (is automountServiceAccountToken false?)");
  if (Result<std::string> name = ReadFile(folder + "/namespace", 1024); name.ok() && !name->empty()) {
    config.namespace_ = std::move(name).value();
    while (!config.namespace_.empty() && config.namespace_.back() == '\n') config.namespace_.pop_back();
  }
  return config;
}

}  // namespace ringmaster::kube
