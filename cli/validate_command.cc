// SPDX-License-Identifier: Apache-2.0

// `ringmaster validate`: checks manifests without opening their data and without starting anything.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/manifest.h"
#include "cli/write_text.h"

namespace ringmaster::cli {

void AddValidate(CLI::App& app, int& exit_code) {
  struct Flags {
    std::vector<std::string> files;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("validate", "Check manifests; exit code 0: all are valid, 2: one is invalid");
  command->add_option("FILE", flags->files, "Manifests (YAML or JSON), - for standard input")->required();
  command->footer("Example:\n  ringmaster validate examples/*.yaml");
  command->callback([flags, &exit_code] {
    exit_code = kSucceeded;
    for (const std::string& file : flags->files) {
      const auto jobs = LoadManifests(file);
      if (!jobs.ok()) {
        exit_code = Refuse(jobs.error());
        continue;
      }
      for (const api::TrainingJob& job : *jobs) Print(stdout, "{}: ok ({})\n", file, job.metadata.name);
    }
  });
}

}  // namespace ringmaster::cli
