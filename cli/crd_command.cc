// SPDX-License-Identifier: Apache-2.0

// `ringmaster crd`: prints the CustomResourceDefinition, which a cluster needs before it accepts
// TrainingJobs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "api/crd.h"
#include "api/load.h"
#include "cli/command.h"
#include "cli/write_text.h"

namespace ringmaster::cli {

void AddCrd(CLI::App& app, int& exit_code) {
  auto docs = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("crd", "Print the CustomResourceDefinition of TrainingJob");
  command->add_flag("--docs", *docs, "Print the reference of all fields instead (Markdown)");
  command->footer("Example:\n  ringmaster crd | kubectl apply --server-side -f -");
  command->callback([docs, &exit_code] {
    std::string text = *docs ? "" : api::CrdYaml();
    if (*docs) {
      for (const api::ReferencePage& page : api::ReferencePages())
        text += (text.empty() ? "" : "\n") + page.text;
    }
    WriteText(stdout, text);
    exit_code = kSucceeded;
  });
}

}  // namespace ringmaster::cli
