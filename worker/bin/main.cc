// SPDX-License-Identifier: Apache-2.0

// ringmaster-worker: the program of a worker pod. `agent` execs ringmaster-agent, the small program next to
// this one, which starts `train` as its child.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/initial_affinity.h"
#include "worker/compute/device/load_plugin.h"
#include "worker/inventory/health.h"
#include "worker/inventory/inventory.h"
#include "worker/trainer/main.h"

namespace {

constexpr int kUnhealthy = 1;
constexpr int kBadUsage = 2;
constexpr int kCannotExec = 70;

constexpr const char* kUsage =
    "Usage: ringmaster-worker COMMAND\n"
    "\n"
    "  agent             supervise a worker's trainer (PID 1 of a pod; configured by RINGMASTER_* "
    "variables)\n"
    "  train             run the trainer; started by an agent\n"
    "  devices [--json] [--health]\n"
    "                    print this machine's CPUs, memory, GPUs, RDMA and transports; --health checks them\n"
    "  version           print the version\n";

int BecomeAgent(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string agent = (error ? std::filesystem::path(".") : self.parent_path()) / "ringmaster-agent";
  ::execv(agent.c_str(), argv);
  std::fprintf(stderr, "ringmaster-worker: cannot run %s: %s\n", agent.c_str(), std::strerror(errno));
  return kCannotExec;
}

int Devices(int argc, char** argv) {
  namespace inventory = ringmaster::inventory;
  bool json = false;
  bool health = false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument != "--json" && argument != "--health") {
      std::fprintf(stderr, "ringmaster-worker devices: unknown argument %s (must be --json or --health)\n",
                   argv[i]);
      return kBadUsage;
    }
    (argument == "--json" ? json : health) = true;
  }
  inventory::Inventory found = inventory::Collect();
  if (!health) {
    found.notes.push_back("training.device auto selects " + ringmaster::device::DescribeAutoDevice());
    std::fputs(json ? inventory::ToJsonText(found).c_str() : inventory::ToTable(found).c_str(), stdout);
    return 0;
  }
  const std::vector<inventory::Finding> findings = inventory::CheckHealth(found);
  std::fputs((json ? inventory::HealthJson(findings) : inventory::HealthTable(findings)).c_str(), stdout);
  return inventory::Healthy(findings) ? 0 : kUnhealthy;
}

}  // namespace

int main(int argc, char** argv) {
  ringmaster::RestoreInitialAffinity();
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "agent") return BecomeAgent(argv);
  if (command == "train") return ringmaster::trainer::TrainMain(argc - 1, argv + 1);
  if (command == "devices") return Devices(argc, argv);
  if (command == "version" || command == "--version") {
    std::printf("ringmaster-worker %s (ringmaster.dev/v1alpha1)\n", RINGMASTER_VERSION);
    return 0;
  }
  const bool asked = command == "help" || command == "--help" || command == "-h";
  std::fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : kBadUsage;
}
