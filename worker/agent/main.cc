// SPDX-License-Identifier: Apache-2.0

// ringmaster-agent supervises the trainer of a worker pod. It is a separate program that links nothing of the
// trainer, so that it stays small.
//
//   ringmaster-agent                           the native trainer; `ringmaster-worker agent` execs this
//   ringmaster-agent train -- COMMAND ARGS...  a program of the user that trains through libringmaster
//   ringmaster-agent run -- COMMAND ARGS...    a program of the user that knows nothing of Ringmaster
//   ringmaster-agent install FILE              copy the agent to a file, for containers with other images
//
// In jobs of framework mpi and horovod it is also what its own `run` and the launcher start:
//
//   ringmaster-agent ranks [-- COMMAND ARGS...]  the program of a pod (mpi_pod.h)
//   ringmaster-agent rsh HOST COMMAND...         in place of ssh; also by the name ringmaster-rsh (mpi_rsh.h)
//   mpirun, mpiexec, ...                         by these names: in place of Hydra's launcher (mpi_hydra.h)
//   horovodrun, ssh, ringmaster                  by these names (horovod_run.h, mpi_rsh.h)
//   ringmaster-agent hosts                       the workers that are there now (horovod_run.h)
//   ringmaster-agent rank PROGRAM ARGS...        one rank (mpi_rank.h)
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/exit_codes.h"
#include "base/log.h"
#include "worker/agent/mpi/horovod_run.h"
#include "worker/agent/mpi/mpi_hydra.h"
#include "worker/agent/mpi/mpi_links.h"
#include "worker/agent/mpi/mpi_pod.h"
#include "worker/agent/mpi/mpi_rank.h"
#include "worker/agent/mpi/mpi_rsh.h"
#include "worker/agent/program/program_agent.h"
#include "worker/agent/shell/install.h"
#include "worker/agent/shell/signals.h"
#include "worker/agent/shell/slot_relay.h"
#include "worker/agent/slots.h"
#include "worker/agent/trainer/agent.h"

namespace {

using namespace ringmaster;

// The earlier the agent runs after a death, the earlier the survivors continue. Best effort: it needs a
// privilege.
constexpr int kNiceness = -10;

constexpr int kLargeBlock = 64 << 10;

std::optional<std::string> FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

void PrepareProcess() {
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&ours, signal);
  ::sigprocmask(SIG_BLOCK, &ours, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  // Return the memory of large messages to the system at once.
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  ::mallopt(M_TRIM_THRESHOLD, kLargeBlock);
}

void BlockPassedSignals() {
  sigset_t passed;
  ::sigemptyset(&passed);
  agent::AddPassedSignals(passed);
  ::sigprocmask(SIG_BLOCK, &passed, nullptr);
}

int RefuseConfiguration(const std::string& message) {
  log::Error("{}", message);
  agent::WriteTerminationLog(FromEnvironment("RINGMASTER_TERMINATION_LOG").value_or(""), message, "");
  return kExitBadInput;
}

int RunAgent(agent::Config config) {
  const auto cpus = static_cast<int32_t>(std::thread::hardware_concurrency());
  Result<std::vector<std::string>> environment =
      agent::SlotEnvironment(config, FromEnvironment, cpus, agent::CountGpus("/dev"));
  if (!environment.ok()) return RefuseConfiguration(environment.error().message);
  config.trainer.variables = std::move(environment).value();
  if (!config.program.empty()) return agent::ProgramAgent(std::move(config)).Run();
  return agent::Agent(std::move(config)).Run();
}

int RunSlot(agent::Config config, int32_t slot, int doorbell) {
  config.slot = slot;
  config.doorbell = doorbell;
  log::Init(fmt::format("agent pod={} slot={}", config.pod, slot));
  return RunAgent(std::move(config));
}

int RunRelay(const agent::Config& config, std::vector<Fd> doorbells) {
  log::Init(fmt::format("relay pod={}", config.pod));
  return agent::RunSlotRelay({config.coordinator_host, config.coordinator_port, config.ca_file},
                             std::move(doorbells));
}

int Install(const char* path) {
  log::Init("agent install");
  const Status installed = agent::InstallAgent(path);
  if (installed.ok()) return 0;
  log::Error("install {}: {}", path, installed.error().message);
  return kExitInternal;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = error ? std::string(".") : self.parent_path().string();
  log::Init("agent pod=" + FromEnvironment("RINGMASTER_POD").value_or("?"));
  Result<agent::CommandLine> command = agent::ParseCommandLine({argv + 1, argv + argc});
  if (!command.ok()) return RefuseConfiguration(command.error().message);
  Result<agent::Config> config = agent::LoadConfig(FromEnvironment, folder, std::move(command).value());
  if (!config.ok()) return RefuseConfiguration(config.error().message);
  const bool is_program = !config->program.empty();
  if (is_program) BlockPassedSignals();
  if (config->slots == 1) return RunAgent(std::move(*config));
  agent::SlotPrograms programs;
  programs.pass_signals = is_program;
  programs.agent = [&](int32_t slot, int doorbell) { return RunSlot(*config, slot, doorbell); };
  programs.relay = [&](std::vector<Fd> doorbells) { return RunRelay(*config, std::move(doorbells)); };
  return agent::SuperviseSlots(config->slots, programs);
}

// The commands of frameworks mpi and horovod; nullopt: none of them is asked for.
std::optional<int> RunForMpi(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string called = agent::ProgramName(argc > 0 ? argv[0] : "");
  if (called == "ringmaster-rsh") return agent::RunRsh(words);
  if (called == agent::kSsh) return agent::RunSsh({argv, argv + argc});
  if (called == agent::kRingmaster) return agent::RunByName({argv, argv + argc});
  if (called == agent::kHorovodRun) return agent::RunHorovod({argv, argv + argc});
  if (agent::IsHydraName(called)) return agent::RunHydra({argv, argv + argc});
  if (words.size() == 1 && words[0] == "hosts") return agent::RunHosts();
  if (words.size() >= 2 && words[0] == "rsh") return agent::RunRsh({words.begin() + 1, words.end()});
  if (words.size() >= 2 && words[0] == "rank") return agent::RunRank({words.begin() + 1, words.end()});
  if (words.empty() || words[0] != "ranks") return std::nullopt;
  log::Init("ranks");
  const bool launches = words.size() > 2 && words[1] == "--";
  return agent::RunMpiPod({words.begin() + (launches ? 2 : 1), words.end()});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const std::optional<int> code = RunForMpi(argc, argv)) return *code;
    if (argc == 3 && std::string_view(argv[1]) == "install") return Install(argv[2]);
    return Main(argc, argv);
  } catch (const std::exception& error) {
    log::Error("internal error: {}", error.what());
    return kExitInternal;
  }
}
