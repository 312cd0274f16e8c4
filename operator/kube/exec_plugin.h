// SPDX-License-Identifier: Apache-2.0

// Credential plugins: programs that print a token or a client certificate (client.authentication.k8s.io v1
// and v1beta1), as cloud providers' kubeconfigs name them.
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

// NAME=VALUE of all that this process was given.
std::vector<std::string> ProcessEnvironment();

struct ExecPlugin {
  std::string origin;       // of the entry in its file, for messages
  std::string api_version;  // client.authentication.k8s.io/v1 or v1beta1
  std::string command;      // a path, or a name to be found in PATH
  std::vector<std::string> args;
  // Ours, as it was when the plugin was read: what we set for ourselves later is not meant for it.
  std::vector<std::string> inherited = ProcessEnvironment();
  std::vector<std::pair<std::string, std::string>> env;  // on top of that
  std::string install_hint;
  bool provide_cluster_info = false;
  Json cluster;  // what it is told about the cluster, if it wants to be
  Duration time_limit = seconds(60);
};

struct ExecCredential {
  std::string token;
  std::optional<KeyPair> pair;
  std::optional<WallTime> expires;
};

// Of the plugin's output. Pure; never shows what it read.
Result<ExecCredential> ParseExecCredential(const std::string& output, const std::string& api_version);

// Runs it, without a terminal and without our descriptors, and waits. Any thread.
Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin);

// Runs the plugin when a credential is needed and the last one has expired or was refused.
std::shared_ptr<TokenSource> MakeExecTokenSource(ExecPlugin plugin);

}  // namespace ringmaster::kube
