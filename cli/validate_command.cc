// SPDX-License-Identifier: Apache-2.0

// `ringmaster validate`: checks manifests without opening their data and without starting anything.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/manifest.h"

namespace ringmaster::cli {

void AddValidate(CLI::App& app, int& exit_code) {
  struct Flags {
    std::vector<std::string> files;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("validate", "Check manifests; exit code 0: all are valid, 2: one is invalid");
  command->add_option("FILE", flags->files, "Manifests (YAML or JSON)")->required();
  command->footer("Example:\n  ringmaster validate examples/*.yaml");
  command->callback([flags, &exit_code] {
    exit_code = kSucceeded;
    for (const std::string& file : flags->files) {
      if (auto job = LoadManifest(file, {}, 0); job.ok())
        std::printf("%s: ok (%s)\n", file.c_str(), job->metadata.name.c_str());
      else
        exit_code = Refuse(job.error());
    }
  });
}

}  // namespace ringmaster::cli
