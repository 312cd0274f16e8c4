// SPDX-License-Identifier: Apache-2.0

// `ringmaster logs`: prints the root cause of the last failure, then the logs of all ranks ordered by time.
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/json.h"
#include "base/mutex.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/log_merge.h"
#include "cli/cluster/status_screen.h"
#include "cli/command.h"
#include "cli/write_text.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Items;
using json::Text;

struct LogsFlags {
  ClusterFlags cluster;
  std::string job;
  std::vector<int> ranks;
  int64_t tail = 200;
  int64_t attempt = 0;
  bool follow = false;
};

// One log to print.
struct Source {
  std::string name;
  Cluster::Container container;
};

// Returns the containers of the requested ranks of an attempt. The name of a rank with one container is its
// number, or ps-0 for a pod of the role ps.
std::vector<Source> SourcesOf(const std::vector<Json>& pods, const LogsFlags& flags, int64_t attempt) {
  std::vector<Source> sources;
  for (const Json& pod : pods) {
    const Json& labels = Child(Child(pod, "metadata"), "labels");
    if (Text(labels, wiring::kAttemptLabel) != std::to_string(attempt)) continue;
    const std::string role(Text(labels, wiring::kRoleLabel));
    const std::string index(Text(labels, wiring::kRankLabel));
    const std::string rank = role.empty() || role == "worker" ? index : role + "-" + index;
    const auto is_rank = [&](int wanted) { return std::to_string(wanted) == rank; };
    if (!flags.ranks.empty() && std::none_of(flags.ranks.begin(), flags.ranks.end(), is_rank)) continue;
    const Json& containers = Items(Child(pod, "spec"), "containers");
    for (const Json& container : containers) {
      const std::string name(Text(container, "name"));
      sources.push_back({containers.size() == 1 ? rank : rank + "/" + name,
                         {std::string(Text(Child(pod, "metadata"), "name")), name}});
    }
  }
  return sources;
}

// Prints the last failure from the status, and the log of the failed pod if it still exists.
void PrintRootCause(Cluster& cluster, const Json& job, const std::vector<Json>& pods, int64_t tail) {
  const std::string failure = LastFailureText(job, kube::WallNow());
  if (failure.empty()) return;
  Print(stdout, "== last failure: {}\n", failure);
  const std::string culprit(Text(Child(Child(job, "status"), "lastFailure"), "pod"));
  std::vector<Cluster::Container> containers;
  for (const Json& pod : pods)
    if (Text(Child(pod, "metadata"), "name") == culprit)
      for (const Json& container : Items(Child(pod, "spec"), "containers"))
        containers.push_back({culprit, std::string(Text(container, "name"))});
  for (const auto& text : cluster.Logs(containers, tail))
    if (text.ok() && !text->empty())
      Print(stdout, "== log of {}\n{}", culprit, MergeLogs({{culprit, *text}}));
  WriteText(stdout, "== ranks\n");
}

Status PrintOnce(Cluster& cluster, const std::vector<Source>& sources, int64_t tail) {
  std::vector<Cluster::Container> containers;
  for (const Source& source : sources) containers.push_back(source.container);
  auto texts = cluster.Logs(containers, tail);
  std::vector<RankLog> logs;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].ok())
      logs.push_back({sources[i].name, *std::move(texts[i])});
    else
      Print(stderr, "ringmaster: no log of {}: {}\n", containers[i].pod, texts[i].error().message);
  }
  if (logs.empty() && !sources.empty())
    return Error{Code::kUnavailable, "no log can be read; the workers may not have started yet"};
  WriteText(stdout, MergeLogs(logs));
  return Ok();
}

// Prints lines as they arrive, until every container has ended.
Status Follow(Cluster& cluster, const std::vector<Source>& sources, int64_t tail) {
  const Fd ended(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  CHECK(ended.valid(), "eventfd");
  Mutex output;  // handlers run on threads of the transport
  std::vector<std::unique_ptr<kube::HttpStream>> streams;
  for (const Source& source : sources) {
    kube::StreamHandlers handlers;
    handlers.on_line = [&output, name = source.name](std::string_view line) {
      MutexLock lock(output);
      Print(stdout, "[{}] {}\n", name, WithoutTime(line));
      std::fflush(stdout);
    };
    handlers.on_end = [&ended, &output,
                       pod = source.container.pod](const Result<kube::HttpResponse>& result) {
      if (!result.ok() || result->status >= 300) {
        MutexLock lock(output);
        Print(stderr, "ringmaster: log of {}: {}\n", pod,
              result.ok() ? result->body : result.error().message);
      }
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t put = ::write(ended.get(), &one, sizeof one);
    };
    streams.push_back(cluster.FollowLog(source.container, tail, std::move(handlers)));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    uint64_t one = 0;
    [[maybe_unused]] const ssize_t got = ::read(ended.get(), &one, sizeof one);
  }
  return Ok();
}

Status Logs(const LogsFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  RM_ASSIGN(const Json job, cluster->Job(name));
  RM_ASSIGN(const std::vector<Json> pods, cluster->PodsOf(name));
  const int64_t attempt = flags.attempt > 0 ? flags.attempt : Integer(Child(job, "status"), "attempt");
  const std::vector<Source> sources = SourcesOf(pods, flags, attempt);
  PrintRootCause(*cluster, job, pods, flags.tail);
  if (sources.empty()) {
    const std::string phase(Text(Child(job, "status"), "phase"));
    return Error{Code::kNotFound, fmt::format("{} has no matching workers (attempt {}, phase {}): {}", name,
                                              attempt, phase.empty() ? "none" : phase, ExplainPhase(job))};
  }
  return flags.follow ? Follow(*cluster, sources, flags.tail) : PrintOnce(*cluster, sources, flags.tail);
}

}  // namespace

void AddLogs(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* command = app.add_subcommand(
      "logs", "Print the root cause of the last failure of a job on a cluster, then its workers' logs");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  command->add_option("--rank", flags->ranks, "Print only these ranks (comma-separated)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--attempt", flags->attempt, "Attempt of the job (default: the newest)")
      ->check(CLI::Range(int64_t{1}, int64_t{999'999'999}));
  command->add_option("--tail", flags->tail, "Number of lines per worker; -1: all")->capture_default_str();
  command->add_flag("-f,--follow", flags->follow, "Print new lines until the workers end");
  AddClusterFlags(*command, flags->cluster);
  command->footer(
      "A terminal gets the colours of a log, but none of its other escape sequences; a file gets every "
      "byte.\n"
      "Example:\n  kubectl ringmaster logs gpt-text --rank 0,1 -f");
  command->callback([flags, &exit_code] {
    const Status done = Logs(*flags);
    exit_code = done.ok() ? kSucceeded : Refuse(done.error());
  });
}

}  // namespace ringmaster::cli
