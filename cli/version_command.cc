// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command.h"
#include "cli/write_text.h"

namespace ringmaster::cli {

const char* VersionText() { return "ringmaster " RINGMASTER_VERSION " (ringmaster.dev/v1alpha1)"; }

void AddVersion(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("version", "Print the version and exit");
  command->footer("Example:\n  ringmaster version");
  command->callback([&exit_code] {
    Print(stdout, "{}\n", VersionText());
    exit_code = kSucceeded;
  });
}

}  // namespace ringmaster::cli
