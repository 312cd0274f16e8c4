// ringmaster-worker: what runs in a worker pod. `agent` becomes ringmaster-agent, the small program beside
// this one; that starts `train` as its child.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "worker/devices/devices.h"
#include "worker/trainer/main.h"

namespace {

constexpr int kBadUsage = 2;
constexpr int kCannotExec = 70;

constexpr const char* kUsage =
    "Usage: ringmaster-worker COMMAND\n"
    "\n"
    "  agent             keep a worker's trainer running (PID 1 of a pod; set up by RINGMASTER_* variables)\n"
    "  train             train; started by an agent\n"
    "  devices [--json]  what this machine has: CPUs, memory, GPUs, RDMA, transports\n"
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
  bool json = false;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--json") {
      std::fprintf(stderr, "ringmaster-worker devices: unknown argument %s (only --json is known)\n",
                   argv[i]);
      return kBadUsage;
    }
    json = true;
  }
  const ringmaster::devices::Inventory found = ringmaster::devices::Collect();
  std::fputs(
      json ? ringmaster::devices::ToJsonText(found).c_str() : ringmaster::devices::ToTable(found).c_str(),
      stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
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
