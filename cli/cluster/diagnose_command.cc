// SPDX-License-Identifier: Apache-2.0

// `ringmaster diagnose`: collects the evidence about a job on a cluster. diagnosis.h evaluates it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/diagnosis.h"
#include "cli/command.h"
#include "cli/ui/plain_text.h"
#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

const kube::Resource kLeases{"coordination.k8s.io", "v1", "leases"};
constexpr const char* kLeaseName = "ringmaster-operator";

struct DiagnoseFlags {
  ClusterFlags cluster;
  std::string job;
  std::string operator_namespace = "ringmaster-system";
};

// Fails only when the job cannot be read. A check whose other evidence cannot be read is reported as unknown.
Result<Evidence> Gather(const DiagnoseFlags& flags) {
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  const std::string name = JobName(flags.job);
  Evidence evidence;
  RM_ASSIGN(evidence.job, cluster->Job(name));
  RM_ASSIGN(evidence.pods, cluster->PodsOf(name));
  const std::string uid(json::Text(json::Child(evidence.job, "metadata"), "uid"));
  if (auto events = cluster->EventsOf(name, uid); events.ok()) evidence.events = *std::move(events);
  if (auto lease = cluster->Get(kLeases, flags.operator_namespace, kLeaseName); lease.ok())
    evidence.lease = *std::move(lease);
  else
    evidence.lease_problem = lease.error().message;
  std::set<std::string> names;
  for (const Json& pod : evidence.pods)
    if (const auto node = json::Text(json::Child(pod, "spec"), "nodeName"); !node.empty())
      names.emplace(node);
  for (const std::string& node : names) {
    auto found = cluster->Get(kube::kNodes, "", node);
    if (found.ok()) {
      evidence.nodes.push_back(*std::move(found));
    } else {
      evidence.nodes_problem = found.error().message;
      break;
    }
  }
  return evidence;
}

}  // namespace

void AddDiagnose(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DiagnoseFlags>();
  CLI::App* command = app.add_subcommand("diagnose",
                                         "Check what prevents a job on a cluster from committing steps; exit "
                                         "code 0: all checks pass, 1: a check "
                                         "failed");
  command->add_option("JOB", flags->job, "Name of the job")->required();
  command->add_option("--operator-namespace", flags->operator_namespace, "Namespace of the operator")
      ->capture_default_str();
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  kubectl ringmaster diagnose gpt-text -n team-a");
  command->callback([flags, &exit_code] {
    const auto evidence = Gather(*flags);
    if (!evidence.ok()) {
      exit_code = Refuse(evidence.error());
      return;
    }
    const std::vector<Check> checks = Diagnose(*evidence, kube::WallNow());
    // Any user of the namespace can put escape sequences into a message.
    WriteText(stdout, PlainText(DiagnosisText(checks)));
    const auto failed = [](const Check& check) { return check.result == CheckResult::kFail; };
    exit_code = std::any_of(checks.begin(), checks.end(), failed) ? kFailed : kSucceeded;
  });
}

}  // namespace ringmaster::cli
