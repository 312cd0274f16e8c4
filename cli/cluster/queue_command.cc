// SPDX-License-Identifier: Apache-2.0

// `ringmaster queue`: the jobs of a cluster that wait for nodes, in their turn.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/cluster.h"
#include "cli/cluster/job_page.h"
#include "cli/cluster/queue_screen.h"
#include "cli/command.h"
#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

struct QueueFlags {
  ClusterFlags cluster;
  bool all = false;
};

Status ShowQueue(const QueueFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  // The line is one for the whole cluster. Who may read one namespace only sees the turn within it.
  auto jobs = cluster->List(kube::kJobs, {});
  const bool partly = !jobs.ok() && jobs.error().code == Code::kForbidden && !flags.all;
  if (partly) {
    kube::ListOptions own;
    own.namespace_ = cluster->space();
    jobs = cluster->List(kube::kJobs, own);
  }
  if (!jobs.ok()) {
    RM_TRY(cluster->CheckJobs(flags.all ? "" : cluster->space()));  // its errors have remedies
    return jobs.error();
  }
  for (Json& job : *jobs) job = PlainTexts(std::move(job));
  auto classes = cluster->List(kube::kPriorityClasses, {});
  std::optional<std::vector<Json>> known;
  if (classes.ok()) known = std::move(classes).value();
  const std::vector<QueueRow> rows = QueueOf(*jobs, known);
  const std::string screen = QueueScreen(rows, flags.all ? "" : cluster->space(), kube::WallNow());
  WriteText(stdout, screen);
  if (SharesDecide(rows))
    Print(stderr,
          "a position is a range where jobs of one priority are of several namespaces: those of a "
          "namespace that "
          "uses less of the cluster for its weight start earlier\n");
  if (partly)
    Print(stderr, "positions count only the jobs of namespace {}: you may not list those of others\n",
          cluster->space());
  if (!known)
    Print(stderr, "positions are those of jobs of one priority: PriorityClasses cannot be read ({})\n",
          classes.error().message);
  return Ok();
}

}  // namespace

void AddQueue(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<QueueFlags>();
  CLI::App* command = app.add_subcommand(
      "queue", "Show the jobs that wait for nodes, in the turn in which the scheduling gate starts them");
  command->add_flag("-A,--all-namespaces", flags->all,
                    "Show the jobs of all namespaces; positions count them in any case");
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  kubectl ringmaster queue -A");
  command->callback([flags, &exit_code] {
    const Status shown = ShowQueue(*flags);
    exit_code = shown.ok() ? kSucceeded : Refuse(shown.error());
  });
}

}  // namespace ringmaster::cli
