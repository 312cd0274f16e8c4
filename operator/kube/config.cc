// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/config.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "operator/kube/environment.h"
#include "operator/kube/in_cluster.h"
#include "operator/kube/kubeconfig.h"

namespace ringmaster::kube {
namespace {

std::string HomeFolder() {
  if (std::string home = Environment("HOME"); !home.empty()) return home;
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return {};
  return entry.pw_dir;
}

std::vector<std::string> SplitPaths(const std::string& list) {
  std::vector<std::string> paths;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) paths.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

// `must_exist`: the user named these files.
Result<std::optional<Kubeconfig>> ReadFiles(const std::vector<std::string>& paths, bool must_exist) {
  std::optional<Kubeconfig> merged;
  for (const std::string& path : paths) {
    const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
    const Result<std::string> text = ReadFile(absolute, 1 << 20);
    if (!text.ok() && text.error().code == Code::kNotFound && !must_exist) continue;
    if (!text.ok()) return text.error().In("kubeconfig");
    RM_ASSIGN(Kubeconfig one, ParseKubeconfig(*text, absolute));
    merged = merged ? Merge(std::move(*merged), one) : std::move(one);
  }
  return merged;
}

}  // namespace

Result<ClientConfig> LoadConfig(const ConfigOptions& options) {
  std::vector<std::string> paths = options.kubeconfig_paths;
  const bool named = !paths.empty();
  if (paths.empty()) paths = SplitPaths(Environment("KUBECONFIG"));
  if (paths.empty())
    if (const std::string home = HomeFolder(); !home.empty()) paths = {home + "/.kube/config"};
  RM_ASSIGN(const std::optional<Kubeconfig> kubeconfig, ReadFiles(paths, named));
  if (kubeconfig) return ToClientConfig(*kubeconfig, options.context);
  if (options.allow_in_cluster && InCluster()) return LoadInCluster();
  std::string tried;
  for (const std::string& path : paths) tried += (tried.empty() ? "" : ", ") + path;
  return Error{
      Code::kInvalid,
      fmt::format(
          "no kubeconfig found (looked for {}){}; set KUBECONFIG",
          tried.empty() ? "none: HOME is not set" : tried,
          options.allow_in_cluster ? ", and not running in a pod (KUBERNETES_SERVICE_HOST is not set)" : "")};
}

}  // namespace ringmaster::kube
