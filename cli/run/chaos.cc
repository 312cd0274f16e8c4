// SPDX-License-Identifier: Apache-2.0

#include "cli/run/chaos.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/process_children.h"

namespace ringmaster::cli {

Result<ChaosOptions> ParseChaos(const std::string& text, uint64_t seed) {
  ChaosOptions options;
  options.seed = seed;
  if (text.empty() || text == "none") return options;
  const Error error{
      Code::kInvalid,
      "--chaos " + text + ": expected kill=SECONDS, stop=SECONDS or none, for example --chaos kill=5"};
  const size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  if (equals == std::string::npos || (kind != "kill" && kind != "stop")) return error;
  std::string number = text.substr(equals + 1);
  if (!number.empty() && number.back() == 's') number.pop_back();
  char* end = nullptr;
  const double interval = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !(interval >= 0.01) || interval > 1e6) return error;
  options.kind = kind == "kill" ? ChaosOptions::Kind::kKill : ChaosOptions::Kind::kStop;
  options.interval = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(interval));
  return options;
}

Duration ChaosPlan::NextDelay() {
  const double factor = 0.5 + random_.Uniform();
  return std::chrono::duration_cast<Duration>(factor * std::chrono::duration<double>(options_.interval));
}

Strike ChaosPlan::NextStrike() {
  constexpr Strike::Target kTargets[] = {Strike::Target::kTrainer, Strike::Target::kAgent,
                                         Strike::Target::kBoth};
  Strike strike;
  strike.target = kTargets[random_.Below(3)];
  strike.victim = random_.Next();
  return strike;
}

namespace {

// Returns the processes that supervise trainers: the agent, or, for a pod with several slots, its children
// that run the same program.
std::vector<int> SupervisorsOf(int agent) {
  const auto program = [](int pid) {
    std::error_code error;
    return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  };
  std::vector<int> supervisors;
  for (const int child : ChildrenOf(agent))
    if (program(child) == program(agent)) supervisors.push_back(child);
  return supervisors.empty() ? std::vector<int>{agent} : supervisors;
}

std::vector<pid_t> GrandchildrenOf(pid_t pid) {
  std::vector<pid_t> grandchildren;
  for (const pid_t child : ChildrenOf(pid)) {
    const std::vector<pid_t> theirs = ChildrenOf(child);
    grandchildren.insert(grandchildren.end(), theirs.begin(), theirs.end());
  }
  return grandchildren;
}

}  // namespace

std::vector<Victim> FindVictims(int pid) {
  static constexpr std::string_view kName = "RINGMASTER_POD=";
  std::vector<Victim> victims;
  for (const pid_t child : GrandchildrenOf(pid)) {
    std::ifstream environment(fmt::format("/proc/{}/environ", child));
    for (std::string variable; std::getline(environment, variable, '\0');) {
      if (!variable.starts_with(kName)) continue;
      const std::string pod = variable.substr(kName.size());
      for (const int supervisor : SupervisorsOf(child))
        victims.push_back({pod, supervisor, ChildrenOf(supervisor)});
    }
  }
  std::sort(victims.begin(), victims.end(), [](const Victim& a, const Victim& b) { return a.pod < b.pod; });
  return victims;
}

std::string ExecuteStrike(const Strike& strike, const std::vector<Victim>& victims, int signal) {
  if (victims.empty()) return {};
  const Victim& victim = victims[strike.victim % victims.size()];
  const char* name = signal == SIGKILL ? "SIGKILL" : "SIGSTOP";
  std::string what;
  if (strike.target != Strike::Target::kAgent) {
    for (const int pid : victim.trainer_pids)
      if (::kill(pid, signal) == 0) what += fmt::format("{} to the trainer (pid {})", name, pid);
  }
  // If the worker has no trainer at the moment (it is starting one), signal its agent.
  if (strike.target != Strike::Target::kTrainer || what.empty()) {
    if (::kill(victim.agent_pid, signal) == 0)
      what += fmt::format("{}{} to the agent (pid {})", what.empty() ? "" : " and ", name, victim.agent_pid);
  }
  return what.empty() ? what : what + " of " + victim.pod;
}

}  // namespace ringmaster::cli
