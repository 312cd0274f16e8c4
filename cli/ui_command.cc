// SPDX-License-Identifier: Apache-2.0

// `ringmaster ui`: serves the live page of a run's folder, or of the jobs of a cluster, until it is
// interrupted.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/cluster/cluster.h"
#include "cli/cluster/cluster_feed.h"
#include "cli/command.h"
#include "cli/run/signals.h"
#include "cli/ui/folder_feed.h"
#include "cli/ui/page_server.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

struct UiFlags {
  ClusterFlags cluster;
  std::string source;
  std::string address = "127.0.0.1";
  uint16_t port = 0;
  bool all_namespaces = false;
};

// A feed, and what follows the address of the server.
struct Served {
  std::unique_ptr<PageFeed> feed;
  std::string query = {};
};

Result<Served> FeedOfCluster(const UiFlags& flags) {
  RM_ASSIGN(auto cluster, Cluster::Connect(flags.cluster));
  Served served;
  std::string space = flags.all_namespaces ? "" : cluster->space();
  if (flags.source.empty()) {
    RM_TRY(cluster->CheckJobs(space));
  } else {
    const std::string name = JobName(flags.source);
    RM_TRY(cluster->Job(name));
    served.query = fmt::format("job={}/{}", cluster->space(), name);
  }
  served.feed = std::make_unique<ClusterFeed>(std::move(cluster), std::move(space));
  return served;
}

Result<Served> FeedOf(const UiFlags& flags) {
  // A local folder takes precedence over a job with the same name; a path is never the name of a job.
  std::error_code ignored;
  const std::string& source = flags.source;
  const bool path = source.find('/') != std::string::npos && !source.starts_with("tj/") &&
                    !source.starts_with("trainingjobs/");
  if (source.empty() || (!path && !std::filesystem::exists(source, ignored))) return FeedOfCluster(flags);
  Served served;
  RM_ASSIGN(served.feed, FolderFeed::Open(source));
  return served;
}

Result<int> ServePage(const UiFlags& flags) {
  Signals signals;  // before the threads, which inherit its mask
  const bool v6 = flags.address.find(':') != std::string::npos && !flags.address.starts_with('[');
  const std::string host = v6 ? "[" + flags.address + "]" : flags.address;
  RM_ASSIGN(const PageAddress address, ParsePageAddress(fmt::format("{}:{}", host, flags.port)));
  RM_ASSIGN(const Served served, FeedOf(flags));
  RM_ASSIGN(const auto server, PageServer::Start(address, *served.feed));
  std::string url = server->url();
  if (!served.query.empty()) url += (url.find('?') == std::string::npos ? "?" : "&") + served.query;
  Print(stdout, "page: {} (Ctrl-C ends it)\n", url);
  std::fflush(stdout);
  pollfd wait{signals.fd(), POLLIN, 0};
  while (!signals.Next()) ::poll(&wait, 1, -1);
  return static_cast<int>(kSucceeded);
}

}  // namespace

void AddUi(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<UiFlags>();
  CLI::App* command =
      app.add_subcommand("ui", "Serve a live page about a run or about the jobs of a cluster");
  command->add_option(
      "DIR_OR_JOB", flags->source,
      "Output folder of `ringmaster run`, finished or running; if there is no such folder, the "
      "name of a job on a cluster (default: the list of jobs)");
  command
      ->add_option("--address", flags->address,
                   "IP address of the page; another address than loopback needs the token that is printed")
      ->capture_default_str();
  command->add_option("--port", flags->port, "Port of the page; 0: any free port")->capture_default_str();
  auto* const all =
      command->add_flag("-A,--all-namespaces", flags->all_namespaces, "List the jobs of all namespaces");
  AddClusterFlags(*command, flags->cluster);
  command->get_option("--namespace")->excludes(all);
  command->footer(
      "Examples:\n"
      "  ringmaster ui ringmaster-out/gpt-text --port 8080\n"
      "  kubectl ringmaster ui                      all jobs of the namespace, and why each waits\n"
      "  kubectl ringmaster ui gpt-text -n team-a   one of them");
  command->callback([flags, &exit_code] {
    const Result<int> served = ServePage(*flags);
    exit_code = served.ok() ? *served : Refuse(served.error());
  });
}

}  // namespace ringmaster::cli
