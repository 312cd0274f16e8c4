// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/kubeconfig.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "api/yaml.h"
#include "base/base64.h"
#include "base/file.h"
#include "operator/kube/pem.h"
#include "operator/kube/token_file.h"
#include "operator/kube/url.h"

namespace ringmaster::kube {
namespace {

using api::Node;

constexpr size_t kMaxPemBytes = 4 << 20;

// Reads members of maps in the file and keeps the first error.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  std::string Where(const Node& node) const { return fmt::format("{}:{}", path_, node.mark.line); }

  std::string String(const Node& map, std::string_view key) {
    const Node* node = map.Find(key);
    if (node == nullptr || node->IsNull()) return {};
    if (node->kind == Node::Kind::kScalar && node->scalar.is_string()) return node->scalar.get<std::string>();
    // kubectl reads `namespace: 42` as text.
    if (node->kind == Node::Kind::kScalar && node->scalar.is_number()) return node->text;
    Fail(*node, fmt::format("{}: expected text, found {}", key,
                            Secret(key) ? "something else" : api::Describe(*node)));
    return {};
  }
  bool Bool(const Node& map, std::string_view key) {
    const Node* node = map.Find(key);
    if (node == nullptr || node->IsNull()) return false;
    if (node->kind == Node::Kind::kScalar && node->scalar.is_boolean()) return node->scalar.get<bool>();
    Fail(*node, fmt::format("{}: expected true or false, found {}", key, api::Describe(*node)));
    return false;
  }
  const std::vector<Node>& List(const Node& map, std::string_view key) {
    static const std::vector<Node> kNone;
    const Node* node = map.Find(key);
    if (node == nullptr || node->IsNull()) return kNone;
    if (node->kind == Node::Kind::kList) return node->items;
    Fail(*node, fmt::format("{}: expected a list", key));
    return kNone;
  }
  // Returns null when it is absent.
  const Node* Map(const Node& map, std::string_view key) {
    const Node* node = map.Find(key);
    if (node == nullptr || node->IsNull()) return nullptr;
    if (node->kind == Node::Kind::kObject) return node;
    Fail(*node, fmt::format("{}: expected a map", key));
    return nullptr;
  }
  void Fail(const Node& node, const std::string& what) {
    if (status_.ok()) status_ = Error{Code::kInvalid, Where(node) + ": " + what};
  }
  const Status& status() const { return status_; }

 private:
  static bool Secret(std::string_view key) {
    return key == "token" || key == "password" || key.ends_with("-data");
  }
  const std::string& path_;
  Status status_;
};

ClusterEntry ReadCluster(Reader& reader, const Node& cluster) {
  ClusterEntry entry;
  entry.server = reader.String(cluster, "server");
  entry.tls_server_name = reader.String(cluster, "tls-server-name");
  entry.ca_data = reader.String(cluster, "certificate-authority-data");
  entry.ca_file = reader.String(cluster, "certificate-authority");
  entry.proxy_url = reader.String(cluster, "proxy-url");
  entry.insecure_skip_tls_verify = reader.Bool(cluster, "insecure-skip-tls-verify");
  return entry;
}

ContextEntry ReadContext(Reader& reader, const Node& context) {
  ContextEntry entry;
  entry.cluster = reader.String(context, "cluster");
  entry.user = reader.String(context, "user");
  entry.namespace_ = reader.String(context, "namespace");
  return entry;
}

// Returns why this plugin cannot run; empty: it can.
std::string ReadExec(Reader& reader, const Node& node, ExecPlugin& plugin) {
  plugin.api_version = reader.String(node, "apiVersion");
  plugin.command = reader.String(node, "command");
  plugin.install_hint = reader.String(node, "installHint");
  plugin.provide_cluster_info = reader.Bool(node, "provideClusterInfo");
  for (const Node& argument : reader.List(node, "args")) {
    if (argument.kind != Node::Kind::kScalar || argument.IsNull()) {
      reader.Fail(argument, "exec: args: expected text");
      continue;
    }
    plugin.args.push_back(argument.scalar.is_string()   ? argument.scalar.get<std::string>()
                          : argument.scalar.is_number() ? argument.text
                                                        : argument.scalar.dump());
  }
  for (const Node& variable : reader.List(node, "env")) {
    const std::string name = reader.String(variable, "name");
    if (name.empty()) reader.Fail(variable, "exec: env: a variable without a name");
    plugin.env.emplace_back(name, reader.String(variable, "value"));
  }
  if (plugin.command.empty()) return "exec has no command";
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1")
    return fmt::format(
        "exec: apiVersion \"{}\" is not supported, client.authentication.k8s.io/v1 and v1beta1 are",
        plugin.api_version);
  if (reader.String(node, "interactiveMode") == "Always")
    return fmt::format(
        "exec: {} requires a terminal (interactiveMode: Always), which is not available; use a token or a "
        "client "
        "certificate",
        plugin.command);
  return {};
}

UserEntry ReadUser(Reader& reader, const Node& user) {
  UserEntry entry;
  entry.cert_data = reader.String(user, "client-certificate-data");
  entry.cert_file = reader.String(user, "client-certificate");
  entry.key_data = reader.String(user, "client-key-data");
  entry.key_file = reader.String(user, "client-key");
  entry.token = reader.String(user, "token");
  entry.token_file = reader.String(user, "tokenFile");
  entry.impersonate_user = reader.String(user, "as");
  if (const Node* exec = reader.Map(user, "exec")) {
    ExecPlugin plugin;
    plugin.origin = reader.Where(*exec);
    entry.unsupported = ReadExec(reader, *exec, plugin);
    entry.exec = std::move(plugin);
  }
  for (const char* key : {"username", "auth-provider", "as-groups", "as-uid", "as-user-extra"}) {
    if (user.Find(key) == nullptr || user.Find(key)->IsNull()) continue;
    entry.unsupported = fmt::format(
        "{} is not supported; supported are token, tokenFile, client-certificate with client-key, exec, as",
        key);
  }
  return entry;
}

// Reads the list `list_key` of {name, `key`: {...}} entries. Of two entries with the same name the first
// counts.
template <class Entry, class Read>
std::map<std::string, Entry> ReadEntries(Reader& reader, const Node& root, const char* list_key,
                                         const char* key, Read read) {
  std::map<std::string, Entry> entries;
  for (const Node& item : reader.List(root, list_key)) {
    if (item.kind != Node::Kind::kObject) {
      reader.Fail(item, fmt::format("{}: expected a map with name and {}", list_key, key));
      continue;
    }
    const std::string name = reader.String(item, "name");
    if (name.empty()) reader.Fail(item, fmt::format("{}: an entry without a name", list_key));
    const Node* inner = reader.Map(item, key);
    Node empty;
    empty.kind = Node::Kind::kObject;
    empty.mark = item.mark;
    Entry entry = read(reader, inner == nullptr ? empty : *inner);
    entry.origin = fmt::format("{}: {} \"{}\"", reader.Where(item), key, name);
    entries.emplace(name, std::move(entry));
  }
  return entries;
}

std::string Names(const auto& entries) {
  std::string names;
  for (const auto& [name, entry] : entries) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

std::string Absolute(const std::string& folder, const std::string& path) {
  const std::filesystem::path given(path);
  return given.is_absolute() ? path : (std::filesystem::path(folder) / given).lexically_normal().string();
}

// Reads PEM from base64 text or, without one, from a file. Returns an empty text if there is neither.
Result<std::string> ReadPem(const std::string& data, const std::string& file, const std::string& folder,
                            const std::string& what) {
  if (!data.empty()) {
    std::string compact = data;
    std::erase_if(compact, [](unsigned char c) { return c == '\n' || c == '\r' || c == ' '; });
    Result<std::string> pem = DecodeBase64(compact);
    if (!pem.ok()) return Error{Code::kInvalid, what + "-data: not valid base64"};
    return pem;
  }
  if (file.empty()) return std::string();
  Result<std::string> pem = ReadFile(Absolute(folder, file), kMaxPemBytes);
  if (!pem.ok()) return pem.error().In(what);
  return pem;
}

Status FillCluster(const ClusterEntry& cluster, ClientConfig& config) {
  if (cluster.server.empty()) return Error{Code::kInvalid, "has no server"};
  const Result<Url> url = ParseUrl(cluster.server);
  if (!url.ok()) return url.error().In("server");
  if (!url->user.empty() || !url->password.empty())
    return Error{Code::kInvalid, "server: a name or password in the URL is not supported"};
  config.server = cluster.server;
  config.tls_server_name = cluster.tls_server_name;
  config.proxy_url = cluster.proxy_url;
  config.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify;
  RM_ASSIGN(config.ca_pem,
            ReadPem(cluster.ca_data, cluster.ca_file, cluster.folder, "certificate-authority"));
  if (config.insecure_skip_tls_verify && !config.ca_pem.empty())
    return Error{Code::kInvalid,
                 "has both insecure-skip-tls-verify and a certificate-authority: remove one of them"};
  if (!config.ca_pem.empty())
    if (Status status = CheckCertificates(config.ca_pem); !status.ok())
      return status.error().In("certificate-authority");
  return Ok();
}

Json ClusterInfo(const ClientConfig& config) {
  Json info = {{"server", config.server}, {"config", nullptr}};
  if (!config.tls_server_name.empty()) info["tls-server-name"] = config.tls_server_name;
  if (config.insecure_skip_tls_verify) info["insecure-skip-tls-verify"] = true;
  if (!config.ca_pem.empty()) info["certificate-authority-data"] = EncodeBase64(config.ca_pem);
  if (!config.proxy_url.empty()) info["proxy-url"] = config.proxy_url;
  return info;
}

Status FillUser(const UserEntry& user, ClientConfig& config) {
  if (!user.unsupported.empty()) return Error{Code::kInvalid, user.unsupported};
  config.impersonate_user = user.impersonate_user;
  RM_ASSIGN(config.client_cert_pem,
            ReadPem(user.cert_data, user.cert_file, user.folder, "client-certificate"));
  RM_ASSIGN(config.client_key_pem, ReadPem(user.key_data, user.key_file, user.folder, "client-key"));
  if (!config.client_cert_pem.empty() && config.client_key_pem.empty())
    return Error{Code::kInvalid, "has a client-certificate and no client-key"};
  if (config.client_cert_pem.empty() && !config.client_key_pem.empty())
    return Error{Code::kInvalid, "has a client-key and no client-certificate"};
  if (!config.client_cert_pem.empty()) RM_TRY(CheckKeyPair(config.client_cert_pem, config.client_key_pem));
  if (!user.token_file.empty()) {
    config.token = MakeTokenFile(Absolute(user.folder, user.token_file));
    if (Result<std::string> token = config.token->Token(); !token.ok()) return token.error().In("tokenFile");
  } else if (!user.token.empty()) {
    if (user.token.find_first_of("\r\n") != std::string::npos)
      return Error{Code::kInvalid, "token: has more than one line"};
    config.token = MakeStaticToken(user.token);
  } else if (user.exec) {
    ExecPlugin plugin = *user.exec;
    if (plugin.command.find('/') != std::string::npos) plugin.command = Absolute(user.folder, plugin.command);
    plugin.cluster = ClusterInfo(config);
    config.token = MakeExecTokenSource(std::move(plugin));
  }
  return Ok();
}

}  // namespace

Result<Kubeconfig> ParseKubeconfig(const std::string& text, const std::string& path) {
  Kubeconfig config;
  config.files = {path};
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return config;  // an empty file is valid
  const api::Parsed parsed = api::ParseYaml(text);
  if (!parsed.problems.empty()) {
    const api::Problem& problem = parsed.problems.front();
    return Error{Code::kInvalid, fmt::format("{}:{}: {}", path, problem.line, problem.message)};
  }
  if (parsed.root.IsNull()) return config;
  if (parsed.root.kind != Node::Kind::kObject)
    return Error{Code::kInvalid,
                 path + ": not a kubeconfig: expected a map with clusters, users and contexts"};
  Reader reader(path);
  if (const std::string kind = reader.String(parsed.root, "kind"); !kind.empty() && kind != "Config")
    return Error{Code::kInvalid, fmt::format("{}: not a kubeconfig: kind is {}, not Config", path, kind)};
  config.current_context = reader.String(parsed.root, "current-context");
  config.clusters = ReadEntries<ClusterEntry>(reader, parsed.root, "clusters", "cluster", ReadCluster);
  config.users = ReadEntries<UserEntry>(reader, parsed.root, "users", "user", ReadUser);
  config.contexts = ReadEntries<ContextEntry>(reader, parsed.root, "contexts", "context", ReadContext);
  if (!reader.status().ok()) return reader.status().error();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (auto& [name, cluster] : config.clusters) cluster.folder = folder;
  for (auto& [name, user] : config.users) user.folder = folder;
  return config;
}

Kubeconfig Merge(Kubeconfig first, const Kubeconfig& second) {
  first.files.insert(first.files.end(), second.files.begin(), second.files.end());
  if (first.current_context.empty()) first.current_context = second.current_context;
  first.clusters.insert(second.clusters.begin(), second.clusters.end());
  first.users.insert(second.users.begin(), second.users.end());
  first.contexts.insert(second.contexts.begin(), second.contexts.end());
  return first;
}

Result<ClientConfig> ToClientConfig(const Kubeconfig& kubeconfig, const std::string& context_name) {
  std::string files;
  for (const std::string& file : kubeconfig.files) files += (files.empty() ? "" : ":") + file;
  const std::string name = context_name.empty() ? kubeconfig.current_context : context_name;
  if (name.empty())
    return Error{Code::kInvalid,
                 fmt::format("{}: current-context is not set; choose a context (available: {})", files,
                             Names(kubeconfig.contexts))};
  const auto context = kubeconfig.contexts.find(name);
  if (context == kubeconfig.contexts.end())
    return Error{Code::kInvalid, fmt::format("{}: there is no context \"{}\" (available: {})", files, name,
                                             Names(kubeconfig.contexts))};
  const std::string& origin = context->second.origin;
  if (context->second.cluster.empty()) return Error{Code::kInvalid, origin + ": names no cluster"};
  const auto cluster = kubeconfig.clusters.find(context->second.cluster);
  if (cluster == kubeconfig.clusters.end())
    return Error{Code::kInvalid, fmt::format("{}: its cluster \"{}\" is not in {} (available: {})", origin,
                                             context->second.cluster, files, Names(kubeconfig.clusters))};
  ClientConfig config;
  if (!context->second.namespace_.empty()) config.namespace_ = context->second.namespace_;
  if (Status status = FillCluster(cluster->second, config); !status.ok())
    return status.error().In(cluster->second.origin);
  if (context->second.user.empty()) return config;  // anonymous
  const auto user = kubeconfig.users.find(context->second.user);
  if (user == kubeconfig.users.end())
    return Error{Code::kInvalid, fmt::format("{}: its user \"{}\" is not in {} (available: {})", origin,
                                             context->second.user, files, Names(kubeconfig.users))};
  if (Status status = FillUser(user->second, config); !status.ok())
    return status.error().In(user->second.origin);
  return config;
}

}  // namespace ringmaster::kube
