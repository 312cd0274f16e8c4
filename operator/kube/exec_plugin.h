// SPDX-License-Identifier: Apache-2.0

// Credential plugins: programs named in a kubeconfig that print a token or a client certificate
// (client.authentication.k8s.io v1 and v1beta1).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"
#include "operator/kube/config.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {

// Returns NAME=VALUE for each environment variable of this process.
std::vector<std::string> ProcessEnvironment();

struct ExecPlugin {
  std::string origin;       // of the entry in its file, for messages
  std::string api_version;  // client.authentication.k8s.io/v1 or v1beta1
  std::string command;      // a path, or a name to look up in PATH
  std::vector<std::string> args;
  // This process's environment when the plugin was read. Variables that main sets later do not reach the
  // plugin.
  std::vector<std::string> inherited = ProcessEnvironment();
  std::vector<std::pair<std::string, std::string>> env;  // added to `inherited`
  std::string install_hint;
  bool provide_cluster_info = false;
  Json cluster;  // passed to the plugin if provide_cluster_info
  Duration time_limit = seconds(60);
};

struct ExecCredential {
  std::string token;
  std::optional<KeyPair> pair;
  std::optional<WallTime> expires;
};

// Parses the plugin's output. Pure. Errors contain nothing of the output.
Result<ExecCredential> ParseExecCredential(const std::string& output, const std::string& api_version);

// Runs the plugin without a terminal and without our descriptors, and waits for its end. Thread-safe.
Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin);

// Runs the plugin when a credential is needed and the last one has expired or was refused.
std::shared_ptr<TokenSource> MakeExecTokenSource(ExecPlugin plugin);

}  // namespace ringmaster::kube
