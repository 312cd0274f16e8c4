// SPDX-License-Identifier: Apache-2.0

// `ringmaster launch`: writes the job for a command line, then runs it on this machine, prints it, or submits
// it with the code of the working folder and follows it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/load.h"
#include "api/yaml_text.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/job_follower.h"
#include "cli/cluster/submit_job.h"
#include "cli/command.h"
#include "cli/launch/code_archive.h"
#include "cli/launch/code_folder.h"
#include "cli/launch/launch_job.h"
#include "cli/launch/script.h"
#include "cli/manifest.h"
#include "cli/run/run_flags.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kMostListed = 100;  // files

struct LaunchFlags {
  ClusterFlags cluster;
  RunFlags run;
  launch::LaunchRequest request;
  std::string workers = "1";
  std::string framework;
  std::string kind;
  std::vector<std::string> sets;
  std::vector<int> ranks = {0};
  int max_restarts = -1;
  bool local = false;
  bool dry_run = false;
  bool detach = false;
  bool no_code = false;
};

// Says what leaves this machine, and what does not although users may expect it.
void PrintCode(const launch::CodeFolder& code, const launch::CodeArchive& archive) {
  Print(stderr, "code: {} files, {} KiB compressed, as {}\n", code.files.size(),
        (archive.bytes.size() + 1023) >> 10, archive.name);
  for (size_t i = 0; i < std::min(code.files.size(), kMostListed); ++i)
    Print(stderr, "  {}\n", code.files[i].path);
  if (code.files.size() > kMostListed) Print(stderr, "  and {} more\n", code.files.size() - kMostListed);
  for (const launch::LeftOut& left_out : code.left_out)
    Print(stderr, "  not sent: {} ({})\n", left_out.path, left_out.why);
}

// Packs the working folder, and sets the name of its ConfigMap in the request. The user owns the ConfigMap
// that a dry run prints, so it gets a name that no submitted job ever uses: `cancel` of such a job would
// delete it.
Result<Json> PackWorkingFolder(bool dry_run, launch::LaunchRequest* request) {
  RM_ASSIGN(const launch::CodeFolder code, launch::ReadCode("."));
  if (code.files.empty())
    return Error{Code::kInvalid,
                 "the working folder has no file to send; start in the folder of the program, "
                 "or pass --no-code with an image that has it"};
  const std::string script = launch::ScriptInFolder(request->command);
  const auto is_script = [&](const launch::CodeFile& file) {
    return file.path == script || "./" + file.path == script;
  };
  if (!script.empty() && std::none_of(code.files.begin(), code.files.end(), is_script))
    return Error{Code::kInvalid, script +
                                     ": not among the files that are sent; start in the folder that "
                                     "contains it, make sure that git does not ignore it, or pass "
                                     "--no-code if the image has it"};
  RM_ASSIGN(launch::CodeArchive archive, launch::PackCode(code));
  if (dry_run) archive.name = request->name + "-" + archive.name;
  PrintCode(code, archive);
  request->code = archive.name;
  return launch::CodeConfigMap(archive);
}

// Decides what the flags left open, and says so.
Result<launch::LaunchRequest> Complete(const LaunchFlags& flags) {
  launch::LaunchRequest request = flags.request;
  RM_TRY(launch::ReadWorkers(flags.workers, &request));
  if (flags.request.min > 0) request.min = flags.request.min;
  if (request.min > request.workers)
    return Error{Code::kInvalid,
                 fmt::format("--min {}: must be at most --workers {}", request.min, request.workers)};
  request.command = launch::WithInterpreter(std::move(request.command));
  if (request.name.empty()) request.name = launch::NameFor(request.command);
  if (flags.max_restarts >= 0) request.max_restarts = flags.max_restarts;
  request.training = launch::Guess(request.command, launch::ReadScript(request.command));
  if (!flags.framework.empty()) request.training.framework = flags.framework;
  if (!flags.kind.empty()) request.training.kind = flags.kind;
  if (flags.framework.empty() || flags.kind.empty())
    Print(stderr, "{}: framework {}, kind {} ({})\n", request.name, request.training.framework,
          request.training.kind,
          request.training.kind == "library"
              ? "the program trains through ringmaster: workers may fail, join and leave"
              : "the ranks restart together when one fails");
  return request;
}

Result<Sets> ParseSets(const LaunchFlags& flags) {
  Sets sets;
  for (const std::string& text : flags.sets) {
    RM_ASSIGN(auto set, ParseSet(text));
    sets.push_back(std::move(set));
  }
  return sets;
}

Result<int> Launch(LaunchFlags flags) {
  RM_ASSIGN(launch::LaunchRequest request, Complete(flags));
  RM_ASSIGN(const Sets sets, ParseSets(flags));
  if (flags.local) flags.no_code = true;  // the workers run in this folder
  if (!flags.local && !flags.dry_run && request.image.empty())
    return Error{Code::kInvalid,
                 "--image: required on a cluster: give an image with what the program needs, such as Python "
                 "and PyTorch; the code of this folder is sent with the job. --local needs none"};
  Json code;
  if (!flags.no_code) {
    RM_ASSIGN(code, PackWorkingFolder(flags.dry_run, &request));
  }
  RM_ASSIGN(api::TrainingJob job,
            ParseManifest("ringmaster launch", api::YamlText(launch::LaunchJob(request)), sets, 0));
  if (!flags.cluster.namespace_.empty()) job.metadata.namespace_ = flags.cluster.namespace_;
  Json manifest = api::ToJson(job);
  if (flags.dry_run) {
    Print(stdout, "{}", api::YamlText(manifest));
    if (!code.is_null()) {
      if (!flags.cluster.namespace_.empty()) code["metadata"]["namespace"] = flags.cluster.namespace_;
      Print(stdout, "---\n{}", api::YamlText(code));
    }
    return static_cast<int>(kSucceeded);
  }
  if (flags.local) {
    flags.run.file = "ringmaster launch";
    flags.run.manifest = api::YamlText(manifest);
    return RunJob(flags.run);
  }
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  manifest["metadata"]["namespace"] = cluster->space();
  if (!code.is_null()) code["metadata"]["namespace"] = cluster->space();
  RM_ASSIGN(const Submitted submitted, SubmitJob(*cluster, manifest, code));
  const std::string& name = request.name;
  if (submitted.code_was_there) Print(stderr, "code: there from an earlier job, not sent again\n");
  Print(stderr,
        "{0}/{1}: submitted; `ringmaster attach {1} -n {0}` follows it, `ringmaster cancel {1} -n {0}` "
        "deletes it{2}\n",
        cluster->space(), name, flags.detach ? "" : ", Ctrl-C stops following");
  if (flags.detach) {
    Print(stdout, "{}\n", name);
    return static_cast<int>(kSucceeded);
  }
  const Result<int> ended = FollowJob(*cluster, name, flags.ranks);
  if (ended.ok()) return *ended;
  Refuse(ended.error());
  return static_cast<int>(kNotEnded);  // kBadInput means that nothing was started
}

void AddJobFlags(CLI::App& command, LaunchFlags& flags) {
  launch::LaunchRequest& request = flags.request;
  command
      .add_option("--workers,--nnodes,--num-machines,--num_machines", flags.workers,
                  "Number of workers, or MIN:MAX; on a cluster each is a pod")
      ->capture_default_str();
  command.add_option("--min", request.min, "Continue with as few as this many workers (default: all)")
      ->check(CLI::Range(1, 4096));
  command.add_option("--gpus", request.gpus, "GPUs of each worker")->check(CLI::Range(0, 64));
  command.add_option("--nproc-per-node,--nproc_per_node", request.processes,
                     "Processes of each worker: a number or gpu (default: one per GPU)");
  command.add_option("--cpus", request.cpus, "CPUs that each worker requests, such as 8 or 500m");
  command.add_option("--memory", request.memory, "Memory that each worker requests, such as 32Gi");
  command.add_option("--max-restarts,--max_restarts", flags.max_restarts, "Restarts before the job fails")
      ->check(CLI::Range(0, 1'000'000));
  command.add_option("--image", request.image, "Container image with what the program needs");
  command.add_option("--runtime", request.runtime, "RuntimeClass of the pods");
  command.add_option("--name", request.name, "Name of the job (default: that of the script)");
  command.add_option(
      "--framework", flags.framework,
      "pytorch, jax, tensorflow, deepspeed, mpi, horovod or custom (default: by the imports of "
      "the script)");
  command
      .add_option(
          "--kind", flags.kind,
          "library: the program trains through ringmaster; ranks: it knows nothing of it (default: by "
          "the imports of the script)")
      ->check(CLI::IsMember({"library", "ranks", "none"}));
  command.add_option("--set", flags.sets, "spec.path=value: set any other field of the job; may be repeated")
      ->allow_extra_args(false);
}

}  // namespace

void AddLaunch(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command =
      app.add_subcommand("launch", "Train with a command: on a cluster, or on this machine with --local");
  command->add_option("COMMAND", flags->request.command, "Program and its arguments, after --")
      ->required()
      ->expected(-1);
  AddJobFlags(*command, *flags);
  auto* const local = command->add_flag("--local", flags->local, "Run on this machine, as `ringmaster run`");
  auto* const dry_run =
      command->add_flag("--dry-run", flags->dry_run,
                        "Print the manifest, for `ringmaster run` and `kubectl apply --server-side`");
  command->add_flag("--detach,-d", flags->detach, "Do not follow the job on the cluster")
      ->excludes(local)
      ->excludes(dry_run);
  command->add_flag("--no-code", flags->no_code, "Send no code: the image has it");
  command
      ->add_option("--rank", flags->ranks, "Print the logs of these ranks of the cluster (comma-separated)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  AddClusterFlags(*command, flags->cluster);
  for (CLI::Option* option : AddRunFlags(*command, flags->run))
    option->needs(local)->group("On this machine (with --local)");
  command->footer(
      "On a cluster the files of this folder travel with the job, up to 700 KiB compressed: all that git "
      "does "
      "not\n"
      "ignore, without files that may hold secrets (.env, keys). They are listed. The command runs in a copy "
      "of "
      "the\n"
      "folder.\n"
      "Exit codes: 0 the job succeeded, 1 it failed, 2 bad input, 3 submitted but its end was not seen, 130 "
      "interrupted.\n"
      "Examples:\n"
      "  ringmaster launch --local --workers 4 -- python3 train.py --epochs 3\n"
      "  ringmaster launch --workers 8 --min 4 --gpus 1 --image registry.example.com/torch:1 -- python3 "
      "train.py\n"
      "  ringmaster launch --workers 2 --gpus 8 --image registry.example.com/torch:1 torchrun train.py\n"
      "  ringmaster launch --workers 4 --dry-run -- python3 train.py > job.yaml");
  command->callback([flags, &exit_code] {
    const Result<int> ended = Launch(*flags);
    exit_code = ended.ok() ? *ended : Refuse(ended.error());
  });
}

}  // namespace ringmaster::cli
