// SPDX-License-Identifier: Apache-2.0

// `ringmaster status`: one screen about a job on a cluster; or, with --wait, the screen of its end.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/export_pod.h"
#include "cli/cluster/logged_membership.h"
#include "cli/cluster/status_screen.h"
#include "cli/command.h"

namespace ringmaster::cli {
namespace {

constexpr int kNotEnded = 3;
constexpr Duration kLookAgain = seconds(1);
constexpr size_t kRanksAsked = 64;
constexpr int64_t kLinesAsked = 1000;

struct StatusFlags {
  ClusterFlags cluster;
  std::string job;
  int wait_seconds = 0;
};

// As far as the logs can be read; of large gangs nobody is asked.
LoggedMemberships ReadMemberships(Cluster& cluster, const Json& job, const std::vector<Json>& pods) {
  LoggedMemberships memberships;
  if (json::Text(json::Child(job, "spec"), "framework") != "native" || pods.size() > kRanksAsked)
    return memberships;
  std::vector<Cluster::Container> containers;
  for (const Json& pod : pods) {
    const auto phase = json::Text(json::Child(pod, "status"), "phase");
    if (phase == "Running" || phase == "Succeeded")
      containers.push_back({std::string(json::Text(json::Child(pod, "metadata"), "name")),
                            std::string(json::Text(WorkerContainerOf(pod), "name"))});
  }
  const auto logs = cluster.Logs(containers, kLinesAsked);
  for (size_t i = 0; i < logs.size(); ++i) {
    if (!logs[i].ok()) continue;
    if (auto membership = LastLoggedMembership(*logs[i])) memberships.emplace(containers[i].pod, *std::move(membership));
  }
  return memberships;
}

bool Holds(const Json& job, const char* type) {
  return json::Text(ConditionOf(job, type), "status") == "True";
}

// The exit code.
Result<int> ShowStatus(const StatusFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  const Time deadline = Now() + seconds(flags.wait_seconds);
  Result<Json> job = cluster->Job(name);
  while (flags.wait_seconds > 0 && Now() < deadline) {
    // An API server that is away for a moment is waited for too.
    if (job.ok() ? Holds(*job, "Succeeded") || Holds(*job, "Failed") : job.error().code != Code::kUnavailable)
      break;
    std::this_thread::sleep_for(kLookAgain);
    job = cluster->Job(name);
  }
  if (!job.ok()) return job.error();
  RM_ASSIGN(const std::vector<Json> pods, cluster->PodsOf(name));
  const LoggedMemberships memberships = ReadMemberships(*cluster, *job, pods);
  std::fputs(StatusScreen(*job, pods, memberships, kube::WallNow()).c_str(), stdout);
  if (flags.wait_seconds == 0 || Holds(*job, "Succeeded")) return static_cast<int>(kSucceeded);
  return Holds(*job, "Failed") ? static_cast<int>(kFailed) : kNotEnded;
}

}  // namespace

void AddStatus(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command =
      app.add_subcommand("status", "Show a job on a cluster: why it is as it is, and each rank");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  command
      ->add_option(
          "--wait", flags->wait_seconds,
          "Until it has ended, or so many seconds; then exit code 0: it succeeded, 1: it failed, 3: neither")
      ->check(CLI::Range(1, 31'536'000));
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  kubectl ringmaster status gpt-text -n team-a");
  command->callback([flags, &exit_code] {
    const Result<int> shown = ShowStatus(*flags);
    exit_code = shown.ok() ? *shown : Refuse(shown.error());
  });
}

}  // namespace ringmaster::cli
