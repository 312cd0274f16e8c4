// SPDX-License-Identifier: Apache-2.0

// `ringmaster run`: parses the flags, runs all checks that need no process, then runs the session.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command.h"
#include "cli/plot/terminal.h"
#include "cli/run/metrics_log.h"
#include "cli/run/metrics_server.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/run_options.h"
#include "cli/run/session.h"
#include "cli/track/mlflow_thread.h"

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
  bool tensorboard = false;
  std::string mlflow;
  std::string metrics_address;
  std::optional<std::string> ui;
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

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
  RM_ASSIGN(options.progress, ParseProgressStyle(flags.progress, StdoutTraits().screen));
  options.tensorboard = flags.tensorboard;
  const std::string tracking_uri = Variable("MLFLOW_TRACKING_URI");
  options.mlflow_uri = flags.mlflow.empty() ? tracking_uri : flags.mlflow;
  if (!flags.mlflow.empty()) {
    RM_TRY(CheckMlflowUri("--mlflow", options.mlflow_uri));
  } else if (!tracking_uri.empty()) {
    // Other programs share the variable: it may name a folder, a database or a service.
    const Status server = CheckMlflowUri("MLFLOW_TRACKING_URI", tracking_uri);
    if (!server.ok()) {
      options.mlflow_uri.clear();
      options.notes.push_back(server.error().message + "; nothing is uploaded");
    }
  }
  options.mlflow_token = Variable("MLFLOW_TRACKING_TOKEN");
  options.mlflow_experiment = Variable("MLFLOW_EXPERIMENT_NAME");
  options.metrics_address = flags.metrics_address;
  if (!flags.metrics_address.empty()) RM_TRY(CheckMetricsAddress(flags.metrics_address));
  if (flags.ui) {
    RM_ASSIGN(options.ui, ParsePageAddress(*flags.ui));
  }
  return options;
}

// Runs the checks and returns a session that has not started a worker. Until all checks have passed it writes
// nothing but the output folder, which it removes again on an error.
Result<std::unique_ptr<Session>> Prepare(const RunOptions& options) {
  RM_ASSIGN(api::TrainingJob job, LoadManifest(options.file, options.sets, options.workers));
  const std::string out = OutputFolderOf(job, options.out);
  const OutputPaths paths = PathsIn(out, job.spec.checkpoint.path.empty() ? "" : job.spec.checkpoint.path);
  RM_ASSIGN(RunPlan plan, MakePlan(std::move(job), paths.checkpoints));
  plan.notes.insert(plan.notes.end(), options.notes.begin(), options.notes.end());
  int64_t resume_step = 0;
  if (!options.fresh && plan.programs) {
    // The programs know alone where they continue.
    RM_ASSIGN(resume_step, MetricsLog::LastStepOf(paths.metrics));
  } else if (!options.fresh) {
    RM_ASSIGN(resume_step, FindResumeStep(&plan));
  }
  OutputPaths absolute = paths;
  absolute.checkpoints = plan.job.spec.checkpoint.path;
  const int64_t needed = plan.checkpoint_bytes * (plan.config.checkpoint_keep + 1);
  RM_ASSIGN(OutputFolder folder, OutputFolder::Open(absolute, needed, !plan.programs.has_value()));
  return Session::Create(options, std::move(plan), std::move(folder), resume_step);
}

int Run(const Flags& flags) {
  // A write over a file size limit or into a closed pipe must fail with an error instead of killing the
  // process.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  auto options = Parse(flags);
  if (!options.ok()) return Refuse(options.error());
  auto session = Prepare(*options);
  if (!session.ok()) return Refuse(session.error());
  return (*session)->Run();
}

// Shows the positional argument as required, which the parser does not know.
class RunFormatter : public CLI::Formatter {
 public:
  explicit RunFormatter(size_t column) { column_width(column); }
  std::string make_option_usage(const CLI::Option* option) const override { return option->get_name(true); }
};

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("run", "Train a job on this machine, or continue an earlier run");
  command->formatter(std::make_shared<RunFormatter>(app.get_formatter()->get_column_width()));
  // Not ->required(): after `--ui` the parser takes FILE for the address of the page; Run sorts that out.
  command->add_option("FILE", flags->file, "TrainingJob manifest (YAML or JSON), - for standard input")
      ->type_name("TEXT REQUIRED");
  command->add_option("--workers", flags->workers, "Number of workers; overrides spec.workers.replicas")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--out", flags->out, "Output folder (default: ringmaster-out/<job name>)");
  command
      ->add_option("--set", flags->sets, "spec.path=value: replace a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--fresh", flags->fresh,
                    "Remove the checkpoints and metrics of an earlier run and start over");
  command
      ->add_option(
          "--chaos", flags->chaos,
          "kill=SECONDS, stop=SECONDS or none: kill or stop a random worker every SECONDS on average")
      ->capture_default_str();
  command->add_option("--chaos-seed", flags->chaos_seed, "Seed of --chaos")->capture_default_str();
  command->add_option("--progress", flags->progress, "auto, bar, plain or json")->capture_default_str();
  command->add_flag("--tensorboard", flags->tensorboard,
                    "Write event files for TensorBoard to DIR/tensorboard");
  command->add_option("--mlflow", flags->mlflow,
                      "URI of an MLflow server to upload the run to (default: MLFLOW_TRACKING_URI)");
  command->add_option("--metrics-address", flags->metrics_address,
                      "HOST:PORT on which to serve Prometheus metrics; a loopback address");
  command->add_option("--ui", flags->ui, "Serve a live page at [IP:]PORT (default: a free port of 127.0.0.1)")
      ->expected(0, 1);
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
    exit_code = Run(*flags);
  });
}

}  // namespace ringmaster::cli
