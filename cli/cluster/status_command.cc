// SPDX-License-Identifier: Apache-2.0

// `ringmaster status`: shows the state of a job on a cluster; with --wait, waits for the job to end first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/export_pod.h"
#include "cli/cluster/job_page.h"
#include "cli/cluster/log_followers.h"
#include "cli/cluster/logged_membership.h"
#include "cli/cluster/status_screen.h"
#include "cli/command.h"
#include "cli/history/busy_windows.h"
#include "cli/plot/live_screen.h"
#include "cli/ui/plain_text.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

constexpr Duration kPollPeriod = seconds(1);
constexpr size_t kMaxRanksRead = 64;  // logs of larger gangs are not read
constexpr int64_t kLinesRead = 1000;

struct StatusFlags {
  ClusterFlags cluster;
  std::string job;
  int wait_seconds = 0;
  bool watch = false;
  bool json = false;
};

// Returns the memberships of the pods whose logs can be read; none for a large gang.
LoggedMemberships ReadMemberships(Cluster& cluster, const Json& job, const std::vector<Json>& pods) {
  LoggedMemberships memberships;
  const Json& spec = json::Child(job, "spec");
  const bool trainers = json::Text(spec, "framework") == "native" ||
                        json::Text(json::Child(spec, "launch"), "kind") == "library";
  if (!trainers || pods.size() > kMaxRanksRead) return memberships;
  std::vector<Cluster::Container> containers;
  for (const Json& pod : pods) {
    const auto phase = json::Text(json::Child(pod, "status"), "phase");
    if (phase == "Running" || phase == "Succeeded")
      containers.push_back({std::string(json::Text(json::Child(pod, "metadata"), "name")),
                            std::string(json::Text(WorkerContainerOf(pod), "name"))});
  }
  const auto logs = cluster.Logs(containers, kLinesRead);
  for (size_t i = 0; i < logs.size(); ++i) {
    if (!logs[i].ok()) continue;
    if (auto membership = LastLoggedMembership(PlainText(*logs[i])))
      memberships.emplace(containers[i].pod, *std::move(membership));
  }
  return memberships;
}

// Any user of the namespace can put escape sequences into a text of a job or a pod: the terminal of the
// reader must not obey them.
Result<std::vector<Json>> ReadPods(Cluster& cluster, const std::string& job) {
  RM_ASSIGN(std::vector<Json> pods, cluster.PodsOf(job));
  for (Json& pod : pods) pod = PlainTexts(std::move(pod));
  return pods;
}

bool IsTrue(const Json& job, const char* type) {
  return json::Text(ConditionOf(job, type), "status") == "True";
}

bool HasEnded(const Json& job) { return IsTrue(job, "Succeeded") || IsTrue(job, "Failed"); }

// Draws the job until it has ended, with what the logs of its workers have. Without a terminal, prints a line
// when its progress or its phase changes.
Result<int> WatchStatus(const StatusFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  ScreenPainter painter;
  LogFollowers logs(*cluster, cluster->space(), [] {});
  ProgressCurve curve;
  std::string printed;
  bool seen = false;
  for (;; std::this_thread::sleep_for(kPollPeriod)) {
    const Result<Json> job = cluster->Job(name);
    // Keep watching while the API server is unavailable, once it has shown the job.
    if (!job.ok() && (!seen || job.error().code != Code::kUnavailable)) return job.error();
    if (!job.ok()) continue;
    seen = true;
    RM_ASSIGN(const std::vector<Json> pods, ReadPods(*cluster, name));
    if (const auto point = ProgressPoint(*job)) curve.Add(*point);
    const TerminalTraits traits = StdoutTraits();
    if (traits.screen && json::Text(json::Child(*job, "spec"), "framework") == "native") {
      std::vector<LogFollowers::Pod> followed;
      for (const Json& pod : pods) followed.push_back(LogFollowers::PodOf(pod));
      logs.Update(followed);
      for (const LogStep& step : logs.TakeSteps()) AddToCurve(step, &curve);
    }
    const LiveScreen screen = WatchScreen(PlainTexts(*job), pods, curve.Losses(),
                                          NewestBusy(BusyWindows(LoggedBusyTimes(logs.logs()))));
    if (traits.screen) {
      painter.Paint(DrawScreen(screen, traits, std::max(3, traits.height - 1)));
    } else {
      std::string line = fmt::format("{}  step {} of {}  {} of {} workers{}", screen.title, screen.step,
                                     screen.total_steps, screen.workers_alive, screen.workers_wanted,
                                     screen.loss.empty() ? "" : "  loss " + screen.loss);
      if (line != printed) Print(stdout, "{}\n", line);
      std::fflush(stdout);
      printed = std::move(line);
    }
    if (HasEnded(*job)) return static_cast<int>(IsTrue(*job, "Succeeded") ? kSucceeded : kFailed);
  }
}

// Prints the screen and returns the exit code.
Result<int> ShowStatus(const StatusFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  const Time deadline = Now() + seconds(flags.wait_seconds);
  Result<Json> job = cluster->Job(name);
  while (flags.wait_seconds > 0 && Now() < deadline) {
    // Keep waiting while the API server is unavailable.
    if (job.ok() ? HasEnded(*job) : job.error().code != Code::kUnavailable) break;
    std::this_thread::sleep_for(kPollPeriod);
    job = cluster->Job(name);
  }
  if (!job.ok()) return job.error();
  if (flags.json) {
    const Json& status = json::Child(*job, "status");
    Print(stdout, "{}\n", (status.is_object() ? status : Json::object()).dump(2));
    return static_cast<int>(kSucceeded);
  }
  RM_ASSIGN(const std::vector<Json> pods, ReadPods(*cluster, name));
  const LoggedMemberships memberships = ReadMemberships(*cluster, *job, pods);
  WriteText(stdout, StatusScreen(PlainTexts(*job), pods, memberships, kube::WallNow()));
  if (flags.wait_seconds == 0 || IsTrue(*job, "Succeeded")) return static_cast<int>(kSucceeded);
  return IsTrue(*job, "Failed") ? static_cast<int>(kFailed) : kNotEnded;
}

}  // namespace

void AddStatus(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command =
      app.add_subcommand("status", "Show the state of a job on a cluster, its reason, and each rank");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  auto* const watch = command->add_flag(
      "-w,--watch", flags->watch,
      "Draw progress, loss and workers until the job ends; exit code 0: succeeded, 1: failed");
  command
      ->add_option("--wait", flags->wait_seconds,
                   "Wait up to N seconds for completion; exit code 0: succeeded, 1: failed, 3: not ended")
      ->check(CLI::Range(1, 31'536'000))
      ->excludes(watch);
  command->add_flag("--json", flags->json, "Print the status of the TrainingJob as JSON")->excludes(watch);
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  kubectl ringmaster status gpt-text -n team-a");
  command->callback([flags, &exit_code] {
    const Result<int> shown = flags->watch ? WatchStatus(*flags) : ShowStatus(*flags);
    exit_code = shown.ok() ? *shown : Refuse(shown.error());
  });
}

}  // namespace ringmaster::cli
