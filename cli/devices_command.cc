// SPDX-License-Identifier: Apache-2.0

// `ringmaster devices`: lists the hardware of this machine that training can use, and checks its health.
#include "worker/inventory/inventory.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/write_text.h"
#include "worker/compute/device/load_plugin.h"
#include "worker/inventory/health.h"

namespace ringmaster::cli {

void AddDevices(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  auto health = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "devices", "Show CPUs, memory, GPUs, RDMA devices and UCX transports of this machine");
  command->add_flag("--json", *json, "Print JSON");
  command->add_flag("--health", *health,
                    "Check their health and print remedies; exit code 1: a check failed");
  command->footer(
      "Examples:\n  ringmaster devices\n  ringmaster devices --json | jq .rdma\n  ringmaster devices "
      "--health");
  command->callback([json, health, &exit_code] {
    inventory::Inventory found = inventory::Collect();
    if (*health) {
      const std::vector<inventory::Finding> findings = inventory::CheckHealth(found);
      WriteText(stdout, *json ? inventory::HealthJson(findings) : inventory::HealthTable(findings));
      exit_code = inventory::Healthy(findings) ? kSucceeded : kFailed;
      return;
    }
    found.notes.push_back("training.device auto selects " + device::DescribeAutoDevice());
    const std::string text = *json ? inventory::ToJsonText(found) : inventory::ToTable(found);
    WriteText(stdout, text);
    exit_code = kSucceeded;
  });
}

}  // namespace ringmaster::cli
