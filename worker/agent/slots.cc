// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/slots.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/process_children.h"
#include "worker/agent/shell/doorbell.h"
#include "worker/agent/shell/program_environment.h"
#include "worker/agent/shell/signals.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";
constexpr const char* kLocalRank = "RINGMASTER_LOCAL_RANK";

// The agent processes of one pod, in the parent process.
class SlotAgents {
 public:
  SlotAgents(const SlotPrograms& programs, Duration short_life)
      : programs_(programs), short_life_(short_life) {}

  // Whether all agents have ended; the relay ends after them.
  bool empty() const { return waiting_.empty() && std::all_of(agents_.begin(), agents_.end(), IsRelay); }
  bool relay_ended() const { return agents_.empty(); }
  int result() const { return result_; }

  void StartAll(int32_t slots) {
    for (int32_t slot = 0; slot < slots; ++slot) {
      Result<std::pair<Fd, Fd>> ends = MakeDoorbell();
      if (!ends.ok()) {
        log::Error("{}", ends.error().message);
        return End(EXIT_FAILURE);
      }
      doorbells_.push_back(std::move(ends).value());
    }
    for (int32_t slot = kRelay; slot < slots && result_ == 0; ++slot) Start(slot);
  }

  // Terminates all agents and restarts none of them.
  void Leave() {
    leaving_ = true;
    waiting_.clear();
    for (const auto& [pid, agent] : agents_) {
      if (agent.slot != kRelay) ::kill(pid, SIGTERM);
    }
  }
  void Pass(int signal) const {
    for (const auto& [pid, agent] : agents_) {
      if (agent.slot != kRelay) ::kill(pid, signal);
    }
  }
  // Ends the relay when it has sent the last messages of the agents.
  void EndRelay() {
    leaving_ = true;
    for (const auto& [pid, relay] : agents_) ::kill(pid, SIGTERM);
  }

  void Reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = agents_.find(pid);
      if (found == agents_.end()) continue;  // an orphan
      const SlotAgent agent = found->second;
      agents_.erase(found);
      OnEnd(agent, status);
    }
    if (waiting_.empty() || KillOrphans()) return;  // the end of each is the next SIGCHLD
    for (const int32_t slot : std::exchange(waiting_, {})) Start(slot);
  }

 private:
  static constexpr int32_t kRelay = -1;
  struct SlotAgent {
    int32_t slot = 0;  // or kRelay
    Time since;
  };
  static bool IsRelay(const std::pair<const pid_t, SlotAgent>& entry) { return entry.second.slot == kRelay; }

  void Start(int32_t slot) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) RunAndExit(parent, slot);
    if (pid > 0) {
      agents_[pid] = {slot, Now()};
      return;
    }
    log::Error("cannot start slot {}: {}", slot, std::error_code(errno, std::generic_category()).message());
    End(EXIT_FAILURE);
  }

  [[noreturn]] void RunAndExit(pid_t parent, int32_t slot) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // the parent died before the line above took effect
    if (slot == kRelay) {
      std::vector<Fd> ours;
      for (auto& [agent, relay] : doorbells_) ours.push_back(std::move(relay));
      std::exit(programs_.relay(std::move(ours)));
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::exit(programs_.agent(slot, doorbells_[static_cast<size_t>(slot)].first.get()));
  }

  void OnEnd(const SlotAgent& agent, int status) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (agent.slot == kRelay) {
      if (empty() || leaving_) return;
      log::Warn("the relay ended code={}", code);
      if (Now() - agent.since < short_life_) return End(code == 0 ? EXIT_FAILURE : code);
      return Start(kRelay);
    }
    log::Info("slot={} ended code={}", agent.slot, code);
    const bool killed = WIFSIGNALED(status) && Now() - agent.since >= short_life_;
    if (killed && !leaving_) return waiting_.push_back(agent.slot);
    if (code != 0) End(code);
  }

  // Kills what a dead agent has started: it has become a child of this process, because each agent is a
  // subreaper while it lives. Otherwise two programs would run as the same rank. Returns whether there is
  // any.
  bool KillOrphans() const {
    bool any = false;
    for (const pid_t pid : ChildrenOfThisProcess()) {
      if (agents_.contains(pid)) continue;
      any = true;
      ::kill(pid, SIGKILL);
    }
    return any;
  }

  void End(int code) {
    if (result_ == 0) result_ = code;
    if (!leaving_) Leave();
  }

  const SlotPrograms& programs_;
  const Duration short_life_;
  std::map<pid_t, SlotAgent> agents_;
  std::vector<int32_t> waiting_;              // slots that start when no orphan is left
  std::vector<std::pair<Fd, Fd>> doorbells_;  // kept here for processes that restart
  bool leaving_ = false;
  int result_ = 0;
};

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// The GPUs that this pod may use: a container may be given fewer than its device files show.
std::vector<std::string> VisibleGpus(const GetEnv& get, int32_t gpus) {
  if (const auto listed = get(kVisibleGpus)) return SplitList(*listed);
  std::vector<std::string> all;
  for (int32_t gpu = 0; gpu < gpus; ++gpu) all.push_back(std::to_string(gpu));
  return all;
}

Status CheckGpus(int32_t slots, const std::vector<std::string>& visible, const char* what) {
  if (visible.empty() || static_cast<int32_t>(visible.size()) >= slots) return Ok();
  return Error{Code::kInvalid, fmt::format("RINGMASTER_SLOTS: {} {}, but this pod has {} GPU{}; request as "
                                           "many GPUs as spec.workers.slots, or lower it",
                                           slots, what, visible.size(), visible.size() == 1 ? "" : "s")};
}

// The number of pods of this machine that take GPUs before this one.
size_t PodsBefore(const GetEnv& get) {
  const std::string text = get(kLocalRank).value_or("");
  int32_t before = 0;
  std::from_chars(text.data(), text.data() + text.size(), before);
  return static_cast<size_t>(std::max(0, before));
}

}  // namespace

int SuperviseSlots(int32_t slots, const SlotPrograms& programs, Duration short_life) {
  SlotAgents agents(programs, short_life);
  agents.StartAll(slots);
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&ours, signal);
  if (programs.pass_signals) AddPassedSignals(ours);
  bool ending = false;
  while (!agents.relay_ended()) {
    if (agents.empty() && !std::exchange(ending, true)) agents.EndRelay();
    int signal = 0;
    const int error = ::sigwait(&ours, &signal);
    CHECK(error == 0, "sigwait: error {}", error);
    if (signal == SIGCHLD) {
      agents.Reap();
    } else if (IsPassed(signal)) {
      agents.Pass(signal);
    } else if (!agents.empty()) {
      log::Info("signal {}: all slots leave", signal);
      agents.Leave();
    }
  }
  return agents.result();
}

std::vector<std::string> PodGpus(int32_t ranks, const GetEnv& get, int32_t gpus) {
  const std::vector<std::string> visible = VisibleGpus(get, gpus);
  if (!get(kLocalRank) || visible.empty()) return {};
  const size_t first = PodsBefore(get) * static_cast<size_t>(ranks);
  const size_t count = std::min(visible.size(), static_cast<size_t>(ranks));
  std::string list;
  for (size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + visible[(first + i) % visible.size()];
  return {fmt::format("{}={}", kVisibleGpus, list)};
}

Result<std::vector<std::string>> OwnGpu(int32_t slot, int32_t slots, const GetEnv& get, int32_t gpus) {
  if (slots == 1 && !get(kLocalRank)) return std::vector<std::string>();
  const std::vector<std::string> visible = VisibleGpus(get, gpus);
  if (visible.empty()) return std::vector<std::string>();
  RM_TRY(CheckGpus(slots, visible, "trainers"));
  const size_t turn = PodsBefore(get) * static_cast<size_t>(slots) + static_cast<size_t>(slot);
  return std::vector<std::string>{
      fmt::format("{}={}", kVisibleGpus, visible[turn % visible.size()]),
      fmt::format("RINGMASTER_GPU_TURN={}", get(kVisibleGpus) ? "" : std::to_string(turn))};
}

Result<std::vector<std::string>> SlotEnvironment(const Config& config, const GetEnv& get, int32_t cpus,
                                                 int32_t gpus) {
  std::vector<std::string> environment;
  if (config.slots > 1) {
    const std::string given = get("RINGMASTER_THREADS").value_or("");
    int32_t threads = 0;
    std::from_chars(given.data(), given.data() + given.size(), threads);
    if (threads <= 0) threads = cpus;
    environment = {fmt::format("RINGMASTER_SLOT={}", config.slot),
                   fmt::format("RINGMASTER_THREADS={}", std::max(1, threads / config.slots))};
    // Otherwise every rank would start as many threads as the pod has cores.
    if (!config.program.empty() && !get("OMP_NUM_THREADS"))
      environment.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1, threads / config.slots)));
  }
  std::vector<std::string> of_gpus;
  if (!config.mpi.empty()) {
    of_gpus = PodGpus(config.mpi_slots, get, gpus);
  } else if (HasLocalRank(config.framework)) {
    RM_TRY(CheckGpus(config.slots, VisibleGpus(get, gpus), "ranks"));
    of_gpus = PodGpus(config.slots, get, gpus);
  } else {
    RM_ASSIGN(of_gpus, OwnGpu(config.slot, config.slots, get, gpus));
  }
  environment.insert(environment.end(), of_gpus.begin(), of_gpus.end());
  return environment;
}

int32_t CountGpus(const std::string& folder) {
  int32_t gpus = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
        std::all_of(name.begin() + kPrefix.size(), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; }))
      ++gpus;
  }
  return gpus;
}

}  // namespace ringmaster::agent
