// SPDX-License-Identifier: Apache-2.0

// `ringmaster run`: a run of a manifest on this machine.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/run/run_flags.h"
#include "cli/ui/page_guard.h"

namespace ringmaster::cli {
namespace {

// Shows the positional argument as required, which the parser does not know.
class RunFormatter : public CLI::Formatter {
 public:
  explicit RunFormatter(size_t column) { column_width(column); }
  std::string make_option_usage(const CLI::Option* option) const override { return option->get_name(true); }
};

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Train a job on this machine, or continue an earlier run");
  command->formatter(std::make_shared<RunFormatter>(app.get_formatter()->get_column_width()));
  // Not ->required(): after `--ui` the parser takes FILE for the address of the page; Run sorts that out.
  command->add_option("FILE", flags->file, "TrainingJob manifest (YAML or JSON), - for standard input")
      ->type_name("TEXT REQUIRED");
  command->add_option("--workers", flags->workers, "Number of workers; overrides spec.workers.replicas")
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--set", flags->sets, "spec.path=value: replace a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  AddRunFlags(*command, *flags);
  command->footer(
      "Without --fresh a run continues from the newest valid checkpoint in the output folder. Ctrl-C writes\n"
      "a checkpoint and stops; a second Ctrl-C stops immediately. SIGHUP rereads FILE and applies\n"
      "spec.workers.replicas and spec.suspend. A run outlives its terminal and records that in "
      "events.jsonl.\n"
      "Exit codes: 0 succeeded, 1 failed, 2 bad input, 130 interrupted.\n"
      "Examples:\n"
      "  ringmaster run examples/gpt-text.yaml --workers 4 --set spec.training.data.path=corpus.txt\n"
      "  ringmaster run job.yaml --out runs/1 --fresh --chaos kill=5\n"
      "  ringmaster run job.yaml --ui\n"
      "  ringmaster run job.yaml --progress json | jq .loss");
  command->callback([flags, &exit_code] {
    // `run --ui job.yaml`: --ui has no address, and its word is FILE.
    if (flags->file.empty() && flags->ui && !ParsePageAddress(*flags->ui).ok()) {
      flags->file = *flags->ui;
      flags->ui = "";
    }
    if (flags->file.empty()) throw CLI::RequiredError("FILE");
    exit_code = RunJob(*flags);
  });
}

}  // namespace ringmaster::cli
