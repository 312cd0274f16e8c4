// SPDX-License-Identifier: Apache-2.0

// `ringmaster export`: writes weights for other programs, with the tensor names that those expect. For a
// local folder it reads the checkpoint itself; for a job on a cluster it starts a pod with the job's volumes
// that runs this command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "api/load.h"
#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/export_pod.h"
#include "cli/cluster/log_merge.h"
#include "cli/cluster/status_screen.h"
#include "cli/command.h"
#include "cli/plot/progress_bar.h"
#include "cli/weights/checkpoint_model.h"
#include "cli/weights/gpt2_names.h"
#include "cli/weights/safetensors.h"
#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Text;

struct ExportFlags {
  ClusterFlags cluster;
  std::string source;
  std::string target;
  std::string image = "ringmaster-worker:" RINGMASTER_VERSION;
  int wait_seconds = 600;
};

Status ExportLocally(const std::string& path, const std::string& target) {
  RM_ASSIGN(CheckpointModel loaded, CheckpointModel::Load(path, 1));
  RM_ASSIGN(const std::vector<Tensor> tensors, ExportTensors(loaded.model().layout(), loaded.params()));
  {
    ProgressBar bar("writing " + target);
    RM_TRY(WriteSafetensors(target, tensors, bar.counter()));
  }
  Print(stdout, "wrote {} tensors, {} parameters of step {}, to {}\n", tensors.size(),
        loaded.model().layout().trainable, loaded.checkpoint().step, target);
  if (loaded.model().config().kind == engine::ModelKind::kGpt)
    Print(stdout,
          "For transformers: name the file model.safetensors and save this next to it as config.json:\n{}\n",
          Gpt2Config(loaded.model().config()).dump(2));
  return Ok();
}

Result<api::TrainingJob> Parsed(Json job) {
  job.erase("status");
  api::Loaded loaded = api::FromStored(job);
  if (!loaded.problems.empty()) return Error{Code::kInvalid, loaded.problems[0].ToString()};
  return std::move(loaded.job);
}

// Returns an existing worker pod of the job, or else the one that the operator would create.
Result<Json> WorkerOf(Cluster& cluster, const api::TrainingJob& job, const std::string& name,
                      const ExportFlags& flags) {
  RM_ASSIGN(std::vector<Json> pods, cluster.PodsOf(name));
  if (!pods.empty()) return std::move(pods.front());
  wiring::Context context;
  context.worker_image = flags.image;
  return wiring::PodOf(job, "", 0, context);
}

Result<Json> AwaitEnd(Cluster& cluster, const std::string& pod, int wait_seconds) {
  const ProgressBar bar("waiting for pod " + pod);
  const Time deadline = Now() + seconds(wait_seconds);
  while (true) {
    Result<Json> found = cluster.Get(kube::kPods, cluster.space(), pod);
    if (!found.ok() && found.error().code != Code::kUnavailable) return found;
    if (found.ok()) {
      const std::string_view phase = Text(Child(*found, "status"), "phase");
      if (phase == "Succeeded" || phase == "Failed") return found;
    }
    if (Now() >= deadline)
      return Error{Code::kDeadlineExceeded,
                   fmt::format("pod {}/{} has not ended within {} s ({}); it keeps running", cluster.space(),
                               pod, wait_seconds, found.ok() ? PodState(*found) : found.error().message)};
    std::this_thread::sleep_for(seconds(1));
  }
}

Status ExportOnCluster(const ExportFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.source);
  const Result<Json> job = cluster->Job(name);
  if (!job.ok())
    return Error{job.error().code, flags.source + ": no such folder, and " + job.error().message};
  if (!flags.target.starts_with('/'))
    return Error{Code::kInvalid, "--to " + flags.target + ": give an absolute path on a volume of the job"};
  RM_ASSIGN(const api::TrainingJob parsed, Parsed(*job));
  std::string from(Text(Child(Child(*job, "status"), "checkpoint"), "path"));
  if (from.empty()) from = wiring::CheckpointPath(parsed);
  if (from.empty())
    return Error{Code::kInvalid,
                 fmt::format("{}/{} writes no checkpoints: set spec.checkpoint.path or volumeClaim",
                             cluster->space(), name)};

  RM_ASSIGN(const Json worker, WorkerOf(*cluster, parsed, name, flags));
  const std::string uid(Text(Child(*job, "metadata"), "uid"));
  const Json pod = ExportPod(worker, name, uid, from, flags.target);
  const std::string pod_name(Text(Child(pod, "metadata"), "name"));
  RM_TRY(cluster->Create(kube::kPods, pod));
  Print(stdout, "pod {}/{} reads {}\n", cluster->space(), pod_name, from);
  std::fflush(stdout);
  RM_ASSIGN(const Json ended, AwaitEnd(*cluster, pod_name, flags.wait_seconds));
  if (const auto log = cluster->Logs({{pod_name, "export"}}, -1).front(); log.ok()) {
    std::string_view rest = *log;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = WithoutTime(rest.substr(0, end));
      Print(stdout, "{}\n", line);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  const bool good = Text(Child(ended, "status"), "phase") == "Succeeded";
  if (good) RM_TRY(cluster->Delete(kube::kPods, pod_name));
  if (good) return Ok();
  return Error{Code::kInternal, fmt::format("pod {}/{} {}; it is kept for inspection", cluster->space(),
                                            pod_name, PodState(ended))};
}

Status Export(const ExportFlags& flags) {
  if (!flags.target.ends_with(".safetensors") || flags.target == ".safetensors")
    return Error{Code::kInvalid, "--to " + flags.target + ": the file name must end in .safetensors"};
  // A local folder takes precedence over a job with the same name; a path is never the name of a job.
  std::error_code ignored;
  const std::string& source = flags.source;
  const bool local = std::filesystem::exists(source, ignored) ||
                     (source.find('/') != std::string::npos && !source.starts_with("tj/"));
  return local ? ExportLocally(source, flags.target) : ExportOnCluster(flags);
}

}  // namespace

void AddExport(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command =
      app.add_subcommand("export", "Write the weights as safetensors (gpt: Hugging Face GPT-2 names)");
  command
      ->add_option(
          "CHECKPOINT_OR_JOB", flags->source,
          "A checkpoint or the output folder of a run; if there is no such folder, the name of a job "
          "on a cluster")
      ->required();
  command
      ->add_option(
          "--to", flags->target,
          "FILE.safetensors to write; for a job on a cluster: an absolute path on a volume of the job")
      ->required();
  command->add_option("--image", flags->image, "Image of the pod if the job has no workers")
      ->capture_default_str();
  command->add_option("--wait", flags->wait_seconds, "Timeout in seconds for a job on a cluster")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  AddClusterFlags(*command, flags->cluster);
  command->footer(
      "Example:\n  ringmaster export ringmaster-out/gpt-text --to model.safetensors\n"
      "  kubectl ringmaster export gpt-text --to /checkpoints/model.safetensors");
  command->callback([flags, &exit_code] {
    const Status status = Export(*flags);
    exit_code = status.ok() ? kSucceeded : Refuse(status.error());
  });
}

}  // namespace ringmaster::cli
