// SPDX-License-Identifier: Apache-2.0

// `ringmaster attach` and `cancel`: the rest of the life of a job that `ringmaster launch` has submitted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/cluster.h"
#include "cli/cluster/job_follower.h"
#include "cli/command.h"
#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

struct AttachFlags {
  ClusterFlags cluster;
  std::string job;
  std::vector<int> ranks = {0};
};

Result<int> Attach(const AttachFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  return FollowJob(*cluster, JobName(flags.job), flags.ranks);
}

Status Cancel(const AttachFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  RM_TRY(cluster->Job(name));
  RM_TRY(cluster->Delete(kube::kJobs, name));
  Print(stdout, "{}/{}: deleted; its workers stop\n", cluster->space(), name);
  return Ok();
}

}  // namespace

void AddAttach(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<AttachFlags>();
  CLI::App* command = app.add_subcommand(
      "attach", "Follow a job on a cluster until it ends; exit code 0: succeeded, 1: failed");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  command->add_option("--rank", flags->ranks, "Print the logs of these ranks (comma-separated)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  AddClusterFlags(*command, flags->cluster);
  command->footer(
      "Ctrl-C stops following; the job continues.\n"
      "Example:\n  kubectl ringmaster attach train --rank 0,1");
  command->callback([flags, &exit_code] {
    const Result<int> ended = Attach(*flags);
    exit_code = ended.ok() ? *ended : Refuse(ended.error());
  });
}

void AddCancel(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<AttachFlags>();
  CLI::App* command = app.add_subcommand(
      "cancel", "Delete a job on a cluster, with its workers; volumes and checkpoints stay");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  kubectl ringmaster cancel train");
  command->callback([flags, &exit_code] {
    const Status done = Cancel(*flags);
    exit_code = done.ok() ? kSucceeded : Refuse(done.error());
  });
}

}  // namespace ringmaster::cli
