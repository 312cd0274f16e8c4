// SPDX-License-Identifier: Apache-2.0

// ringmaster-agent that always restarts a failed trainer at once, without back-off.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdlib>

#include "base/exit_codes.h"
#include "worker/agent/trainer/agent.h"

int main() {
  using namespace ringmaster;
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&ours, signal);
  ::sigprocmask(SIG_BLOCK, &ours, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto config = agent::LoadConfig(
      [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        if (value == nullptr) return std::nullopt;
        return value;
      },
      ".");
  if (!config.ok()) return kExitBadInput;
  rendezvous::MemberOptions timing;
  timing.restart_backoff_min = timing.restart_backoff_max = milliseconds(1);
  return agent::Agent(std::move(config).value(), timing).Run();
}
