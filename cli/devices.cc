// `ringmaster devices`: what this machine has for training.
#include "worker/devices/devices.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"

namespace ringmaster::cli {

void AddDevices(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "devices", "Show CPUs, memory, GPUs, RDMA devices and UCX transports of this machine");
  command->add_flag("--json", *json, "For programs");
  command->footer("Examples:\n  ringmaster devices\n  ringmaster devices --json | jq .rdma");
  command->callback([json, &exit_code] {
    const devices::Inventory inventory = devices::Collect();
    const std::string text = *json ? devices::ToJsonText(inventory) : devices::ToTable(inventory);
    std::fputs(text.c_str(), stdout);
    exit_code = kSucceeded;
  });
}

}  // namespace ringmaster::cli
