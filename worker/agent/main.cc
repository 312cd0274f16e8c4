// ringmaster-agent: the process keeper of a pod, a program of its own so that it stays small. It links
// nothing of what a trainer needs. `ringmaster-worker agent` becomes this program by exec.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "worker/agent/agent.h"

namespace {

using namespace ringmaster;

// The sooner the agent runs after a death, the sooner the others go on. Needs a privilege; does without.
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
  // What a large message took goes back to the system at once.
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  ::mallopt(M_TRIM_THRESHOLD, kLargeBlock);
}

int Main() {
  PrepareProcess();
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = error ? std::string(".") : self.parent_path().string();
  log::Init("agent pod=" + FromEnvironment("RINGMASTER_POD").value_or("?"));
  Result<agent::Config> config = agent::LoadConfig(FromEnvironment, folder);
  if (!config.ok()) {
    log::Error("{}", config.error().message);
    agent::WriteTerminationLog(FromEnvironment("RINGMASTER_TERMINATION_LOG").value_or(""),
                               config.error().message, "");
    return agent::kExitBadConfiguration;
  }
  return agent::Agent(std::move(config).value()).Run();
}

}  // namespace

int main() {
  try {
    return Main();
  } catch (const std::exception& error) {
    log::Error("internal error: {}", error.what());
    return agent::kExitInternal;
  }
}
