// SPDX-License-Identifier: Apache-2.0

// kubeconfig files: their text to values, several merged to one, one context of it to a ClientConfig.
//
// ParseKubeconfig and Merge are pure. ToClientConfig reads the files that the entries name. Every error says
// which file and entry it is about; none shows a secret.
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
  std::string folder;  // of the file: relative paths start here
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
  std::string unsupported;  // a way to log in that we do not have; an error only when the entry is used
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

// `path` is for messages and for relative paths in the text. kInvalid with file and line.
Result<Kubeconfig> ParseKubeconfig(const std::string& text, const std::string& path);

// What `first` has stays; entries are taken whole, never mixed.
Kubeconfig Merge(Kubeconfig first, const Kubeconfig& second);

// `context` empty: the current one.
Result<ClientConfig> ToClientConfig(const Kubeconfig& kubeconfig, const std::string& context);

}  // namespace ringmaster::kube
