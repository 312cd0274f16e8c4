// SPDX-License-Identifier: Apache-2.0

#include "operator/local/leftovers.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/time.h"

namespace ringmaster::local {
namespace {

constexpr Duration kEndLimit = seconds(10);  // a process with much memory ends long after the signal
constexpr useconds_t kEndPoll = 1000;

// A zombie has no environment, and neither has a process of another user.
bool HasVariable(pid_t pid, const std::string& variable) {
  const Result<std::string> environment = ReadFile(fmt::format("/proc/{}/environ", pid));
  if (!environment.ok()) return false;
  const std::string all = '\0' + *environment;
  return all.find('\0' + variable + '\0') != std::string::npos;
}

std::vector<pid_t> FindLeftovers(const std::string& variable) {
  std::vector<pid_t> found;
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc", error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename();
    pid_t pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed == std::errc() && *end == '\0' && pid != ::getpid() && HasVariable(pid, variable))
      found.push_back(pid);
  }
  return found;
}

}  // namespace

Status EndLeftovers(const std::string& variable) {
  const Time limit = Now() + kEndLimit;
  bool logged = false;
  while (true) {
    const std::vector<pid_t> found = FindLeftovers(variable);
    if (found.empty()) return Ok();
    if (!logged) log::Warn("{} processes of an earlier run in this folder are killed", found.size());
    logged = true;
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    if (Now() >= limit)
      return Error{Code::kUnavailable,
                   fmt::format("process {} of an earlier run in this folder does not end after SIGKILL",
                               found.front())};
    ::usleep(kEndPoll);
  }
}

}  // namespace ringmaster::local
