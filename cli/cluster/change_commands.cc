// SPDX-License-Identifier: Apache-2.0

// `ringmaster scale`, `suspend` and `resume`: manual changes to a running job.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/command.h"
#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Flag;
using json::Integer;
using json::Text;

struct ChangeFlags {
  ClusterFlags cluster;
  std::string job;
  int32_t replicas = 0;
};

Status Scale(const ChangeFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  RM_ASSIGN(const Json job, cluster->Job(name));
  const Json& workers = Child(Child(job, "spec"), "workers");
  const int64_t before = Integer(workers, "replicas", 1);
  const int64_t most = Integer(workers, "max", before), least = Integer(workers, "min", before);
  if (flags.replicas < least || flags.replicas > most)
    return Error{Code::kInvalid,
                 fmt::format("{}/{} may have {} to {} workers (spec.workers.min and max), not {}",
                             cluster->space(), name, least, most, flags.replicas)};
  RM_TRY(cluster->MergePatch(kube::kJobs, name, "scale", {{"spec", {{"replicas", flags.replicas}}}}));
  Print(stdout, "{}/{}: from {} to {} workers\n", cluster->space(), name, before, flags.replicas);
  return Ok();
}

Status Suspend(const ChangeFlags& flags, bool suspend) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  RM_ASSIGN(const Json job, cluster->Job(name));
  const std::string phase(Text(Child(job, "status"), "phase"));
  const bool already = Flag(Child(job, "spec"), "suspend") == suspend;
  if (phase == "Succeeded" || phase == "Failed")
    return Error{Code::kInvalid, fmt::format("{}/{} has already ended ({})", cluster->space(), name, phase)};
  if (!already) RM_TRY(cluster->MergePatch(kube::kJobs, name, "", {{"spec", {{"suspend", suspend}}}}));
  const char* what = "suspending: the workers exit, after a checkpoint if the job writes any";
  if (already)
    what = suspend ? "is suspended already" : "is not suspended";
  else if (!suspend)
    what = "resuming: a new attempt continues from the checkpoint";
  Print(stdout, "{}/{}: {}\n", cluster->space(), name, what);
  return Ok();
}

CLI::App* AddChange(CLI::App& app, int& exit_code, const char* verb, const char* help, const char* example,
                    const std::shared_ptr<ChangeFlags>& flags,
                    const std::function<Status(const ChangeFlags&)>& change) {
  CLI::App* command = app.add_subcommand(verb, help);
  command->add_option("JOB", flags->job, "Name of the job")->required();
  AddClusterFlags(*command, flags->cluster);
  command->footer(std::string("Example:\n  kubectl ringmaster ") + example);
  command->callback([flags, change, &exit_code] {
    const Status done = change(*flags);
    exit_code = done.ok() ? kSucceeded : Refuse(done.error());
  });
  return command;
}

}  // namespace

void AddScale(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChangeFlags>();
  AddChange(app, exit_code, "scale", "Change the number of workers of a job on a cluster",
            "scale gpt-text --replicas 6", flags, Scale)
      ->add_option("--replicas", flags->replicas, "Desired number of workers")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
}

void AddSuspend(CLI::App& app, int& exit_code) {
  AddChange(app, exit_code, "suspend",
            "Suspend a job on a cluster: it writes a checkpoint and releases its workers", "suspend gpt-text",
            std::make_shared<ChangeFlags>(), [](const ChangeFlags& flags) { return Suspend(flags, true); });
}

void AddResume(CLI::App& app, int& exit_code) {
  AddChange(app, exit_code, "resume", "Resume a suspended job on a cluster", "resume gpt-text",
            std::make_shared<ChangeFlags>(), [](const ChangeFlags& flags) { return Suspend(flags, false); });
}

}  // namespace ringmaster::cli
