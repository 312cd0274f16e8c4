// SPDX-License-Identifier: Apache-2.0

#include "cli/run/run_flags.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/manifest.h"
#include "cli/plot/terminal.h"
#include "cli/run/metrics_log.h"
#include "cli/run/metrics_server.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/run_options.h"
#include "cli/run/session.h"
#include "cli/track/mlflow_thread.h"
#include "cli/ui/page_guard.h"

namespace ringmaster::cli {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Result<RunOptions> Parse(const RunFlags& flags) {
  RunOptions options;
  options.file = flags.file;
  options.manifest = flags.manifest;
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
  options.digests = flags.digests;
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
  RM_ASSIGN(api::TrainingJob job,
            options.manifest.empty()
                ? LoadManifest(options.file, options.sets, options.workers)
                : ParseManifest(options.file, options.manifest, options.sets, options.workers));
  const std::string out = OutputFolderOf(job, options.out);
  const OutputPaths paths = PathsIn(out, job.spec.checkpoint.path.empty() ? "" : job.spec.checkpoint.path);
  RM_ASSIGN(RunPlan plan, MakePlan(std::move(job), paths.checkpoints));
  if (options.digests && !plan.library)
    return Error{Code::kInvalid,
                 "--digests: only programs with launch.kind library record digests; remove the flag"};
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

}  // namespace

std::vector<CLI::Option*> AddRunFlags(CLI::App& command, RunFlags& flags) {
  return {
      command.add_option("--out", flags.out, "Output folder (default: ringmaster-out/<job name>)"),
      command.add_flag("--fresh", flags.fresh,
                       "Remove the checkpoints and metrics of an earlier run and start over"),
      command
          .add_option(
              "--chaos", flags.chaos,
              "kill=SECONDS, stop=SECONDS or none: kill or stop a random worker every SECONDS on average")
          ->capture_default_str(),
      command.add_option("--chaos-seed", flags.chaos_seed, "Seed of --chaos")->capture_default_str(),
      command.add_option("--progress", flags.progress, "auto, bar, plain or json")->capture_default_str(),
      command.add_flag("--tensorboard", flags.tensorboard,
                       "Write event files for TensorBoard to DIR/tensorboard"),
      command.add_flag("--digests", flags.digests,
                       "Record hashes of all gradients and states in DIR/digests for `ringmaster compare`; "
                       "launch.kind library"),
      command.add_option("--mlflow", flags.mlflow,
                         "URI of an MLflow server to upload the run to (default: MLFLOW_TRACKING_URI)"),
      command.add_option("--metrics-address", flags.metrics_address,
                         "HOST:PORT on which to serve Prometheus metrics; a loopback address"),
      command
          .add_option("--ui", flags.ui, "Serve a live page at [IP:]PORT (default: a free port of 127.0.0.1)")
          ->expected(0, 1)};
}

int RunJob(const RunFlags& flags) {
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

}  // namespace ringmaster::cli
