// SPDX-License-Identifier: Apache-2.0

// Parses kubeconfig files, merges several into one, and makes a ClientConfig of one context.
//
// ParseKubeconfig and Merge are pure. ToClientConfig reads the files that the entries name. Every error names
// its file and entry; none contains a secret.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "operator/kube/config.h"
#include "operator/kube/exec_plugin.h"

namespace ringmaster::kube {

struct ClusterEntry {
  std::string origin;  // "/home/x/.kube/config:12", for messages
  std::string folder;  // of the file; relative paths start here
  std::string server;
  std::string tls_server_name;
  std::string ca_data;  // base64, as in the file
  std::string ca_file;
  std::string proxy_url;
  bool insecure_skip_tls_verify = false;
};

struct UserEntry {
  std::string origin;
  std::string folder;
  std::string cert_data;
  std::string cert_file;
  std::string key_data;
  std::string key_file;
  std::string token;
  std::string token_file;
  std::string impersonate_user;
  std::optional<ExecPlugin> exec;
  std::string unsupported;  // why its login method is not supported; an error only when the entry is used
};

struct ContextEntry {
  std::string origin;
  std::string cluster;
  std::string user;
  std::string namespace_;
};

struct Kubeconfig {
  std::vector<std::string> files;
  std::string current_context;
  std::map<std::string, ClusterEntry> clusters;
  std::map<std::string, UserEntry> users;
  std::map<std::string, ContextEntry> contexts;
};

// `path`: for messages, and the base of relative paths. Errors: kInvalid with file and line.
Result<Kubeconfig> ParseKubeconfig(const std::string& text, const std::string& path);

// Entries of `first` win. An entry comes entirely from one file.
Kubeconfig Merge(Kubeconfig first, const Kubeconfig& second);

// `context` empty: current-context.
Result<ClientConfig> ToClientConfig(const Kubeconfig& kubeconfig, const std::string& context);

}  // namespace ringmaster::kube
