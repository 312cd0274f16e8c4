// SPDX-License-Identifier: Apache-2.0

// `ringmaster run`: flags, everything that can be refused before a process starts, then the session.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/run_options.h"
#include "cli/run/session.h"

namespace ringmaster::cli {
namespace {

struct Flags {
  std::string file;
  int workers = 0;
  std::string out;
  std::vector<std::string> sets;
  bool fresh = false;
  std::string chaos = "none";
  uint64_t chaos_seed = 1;
  std::string progress = "auto";
};

Result<RunOptions> Parse(const Flags& flags) {
  RunOptions options;
  options.file = flags.file;
  options.workers = flags.workers;
  options.out = flags.out;
  options.fresh = flags.fresh;
  for (const std::string& set : flags.sets) {
    RM_ASSIGN(auto pair, ParseSet(set));
    options.sets.push_back(std::move(pair));
  }
  RM_ASSIGN(options.chaos, ParseChaos(flags.chaos, flags.chaos_seed));
  RM_ASSIGN(options.progress, ParseProgressStyle(flags.progress, ::isatty(STDOUT_FILENO) == 1));
  return options;
}

// Refuses, or gives back a session that has started nothing yet. Nothing is written before all checks passed,
// but for the output folder itself, which goes away again when it was made here.
Result<std::unique_ptr<Session>> Prepare(const RunOptions& options) {
  RM_ASSIGN(api::TrainingJob job, LoadManifest(options.file, options.sets, options.workers));
  const std::string out = OutputFolderOf(job, options.out);
  const OutputPaths paths = PathsIn(out, job.spec.checkpoint.path.empty() ? "" : job.spec.checkpoint.path);
  RM_ASSIGN(RunPlan plan, MakePlan(std::move(job), paths.checkpoints));
  int64_t resume_step = 0;
  if (!options.fresh) {
    RM_ASSIGN(resume_step, FindResumeStep(plan.job.spec.checkpoint.path, plan.fingerprint, &plan.notes));
  }
  OutputPaths absolute = paths;
  absolute.checkpoints = plan.job.spec.checkpoint.path;
  const int64_t needed = plan.checkpoint_bytes * (plan.config.checkpoint_keep + 1);
  RM_ASSIGN(OutputFolder folder, OutputFolder::Open(absolute, needed));
  if (options.fresh) RM_TRY(folder.Clean());
  return Session::Create(options, std::move(plan), std::move(folder), resume_step);
}

int Run(const Flags& flags) {
  // A write beyond a limit or into a closed pipe is an error value, not a death.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  auto options = Parse(flags);
  if (!options.ok()) return Refuse(options.error());
  auto session = Prepare(*options);
  if (!session.ok()) return Refuse(session.error());
  return (*session)->Run();
}

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("run", "Train a job on this machine, or go on with it");
  command->add_option("FILE", flags->file, "TrainingJob manifest (YAML or JSON)")->required();
  command->add_option("--workers", flags->workers, "Number of workers; replaces spec.workers.replicas")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--out", flags->out, "Output folder (default: ringmaster-out/<job name>)");
  command
      ->add_option("--set", flags->sets, "spec.path=value: replaces a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--fresh", flags->fresh, "Start over: removes checkpoints and metrics of an earlier run");
  command
      ->add_option("--chaos", flags->chaos,
                   "kill=SECONDS, stop=SECONDS or none: kills or stops a random worker about so often")
      ->capture_default_str();
  command->add_option("--chaos-seed", flags->chaos_seed, "Seed of --chaos")->capture_default_str();
  command->add_option("--progress", flags->progress, "auto, bar, plain or json")->capture_default_str();
  command->footer(
      "Without --fresh a run continues from the newest good checkpoint in the output folder. Ctrl-C writes "
      "a\n"
      "checkpoint and stops; a second Ctrl-C stops at once. SIGHUP reads FILE again and applies\n"
      "spec.workers.replicas and spec.suspend.\n"
      "Exit codes: 0 succeeded, 1 failed, 2 bad input, 130 interrupted.\n"
      "Examples:\n"
      "  ringmaster run examples/gpt-text.yaml --workers 4 --set spec.training.data.path=corpus.txt\n"
      "  ringmaster run job.yaml --out runs/1 --fresh --chaos kill=5\n"
      "  ringmaster run job.yaml --progress json | jq .loss");
  command->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace ringmaster::cli
