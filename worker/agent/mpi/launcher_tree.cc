// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/launcher_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/process_children.h"
#include "worker/agent/mpi/mpi_rsh.h"

namespace ringmaster::agent {
namespace {

constexpr int kDeepest = 16;
constexpr size_t kLongestCommand = 120;

std::vector<std::string> TextsOf(pid_t pid, const char* file) {
  std::vector<std::string> texts;
  const Result<std::string> all = ReadFile(fmt::format("/proc/{}/{}", pid, file));
  if (!all.ok()) return texts;
  for (size_t begin = 0; begin < all->size();) {
    const size_t end = std::min(all->find('\0', begin), all->size());
    texts.push_back(all->substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

bool IsAgent(pid_t pid) {
  std::error_code error;
  return std::filesystem::equivalent(fmt::format("/proc/{}/exe", pid), "/proc/self/exe", error) && !error;
}

bool HasRankVariable(pid_t pid) {
  const std::vector<std::string> variables = TextsOf(pid, "environ");
  return std::any_of(variables.begin(), variables.end(), [](const std::string& variable) {
    return variable.starts_with("PMI_RANK=") || variable.starts_with("PMIX_RANK=") ||
           variable.starts_with("OMPI_COMM_WORLD_RANK=") || variable.starts_with("HOROVOD_RANK=");
  });
}

// Calls `visit` for the process and all below it, until it returns false; below a process for which it sets
// `skip`, it calls it for none.
bool Walk(pid_t pid, int depth, const std::function<bool(pid_t, bool* skip)>& visit) {
  bool skip = false;
  if (!visit(pid, &skip)) return false;
  if (skip || depth >= kDeepest) return true;
  const std::vector<pid_t> children = ChildrenOf(pid);
  return std::all_of(children.begin(), children.end(),
                     [&](pid_t child) { return Walk(child, depth + 1, visit); });
}

}  // namespace

bool ReachesOtherPods(pid_t launcher, const std::function<bool(const std::string& host)>& is_this_pod) {
  return !Walk(launcher, 0, [&](pid_t pid, bool* skip) {
    if (!IsAgent(pid)) return true;
    *skip = true;
    std::vector<std::string> words = TextsOf(pid, "cmdline");
    if (words.empty()) return true;
    const bool command = words.size() > 1 && words[1] == "rsh";
    if (!command && !words[0].ends_with("ringmaster-rsh") && !words[0].ends_with("ssh")) return true;
    words.erase(words.begin(), words.begin() + (command ? 2 : 1));
    const Result<RshCommand> parsed = ParseRsh(words);
    return !parsed.ok() || is_this_pod(parsed->host);
  });
}

UnseenRank FindUnseenRank(pid_t launcher) {
  UnseenRank found;
  Walk(launcher, 0, [&](pid_t pid, bool* skip) {
    if (IsAgent(pid)) {
      *skip = true;  // what the agent's own programs start is seen
      return true;
    }
    if (pid == launcher || !HasRankVariable(pid)) return true;
    found.pid = pid;
    for (const std::string& word : TextsOf(pid, "cmdline"))
      found.command += (found.command.empty() ? "" : " ") + word;
    found.command.resize(std::min(found.command.size(), kLongestCommand));
    return false;
  });
  return found;
}

}  // namespace ringmaster::agent
