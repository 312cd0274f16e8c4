// SPDX-License-Identifier: Apache-2.0

// `ringmaster render`: prints the objects that the operator would create for a manifest or for a job on a
// cluster. For a manifest, values that only a cluster has (the uid, the CA of the coordinator) are obvious
// placeholders.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/load.h"
#include "api/yaml_text.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/command.h"
#include "cli/manifest.h"
#include "cli/write_text.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::cli {
namespace {

constexpr const char* kNoUid = "UID-OF-THE-JOB";
constexpr size_t kMaxAuthorityBytes = size_t{1} << 20;

struct RenderFlags {
  ClusterFlags cluster;
  std::string file;
  std::vector<std::string> sets;
  std::string gang;
  std::string authority_file;
  std::string uid = kNoUid;
  wiring::Context context;
};

const std::map<std::string, wiring::Gang>& Gangs() {
  static const std::map<std::string, wiring::Gang> gangs = {{"none", wiring::Gang::kNone},
                                                            {"gate", wiring::Gang::kGate},
                                                            {"native", wiring::Gang::kNative},
                                                            {"volcano", wiring::Gang::kVolcano},
                                                            {"coscheduling", wiring::Gang::kCoscheduling}};
  return gangs;
}

Result<api::TrainingJob> FromFile(const RenderFlags& flags) {
  Sets sets;
  for (const std::string& text : flags.sets) {
    RM_ASSIGN(auto set, ParseSet(text));
    sets.push_back(std::move(set));
  }
  return LoadManifest(flags.file, sets, 0);
}

// Takes uid, attempt and excluded nodes from the job on the cluster, unless flags set them.
Result<api::TrainingJob> FromCluster(RenderFlags& flags) {
  if (!flags.sets.empty())
    return Error{Code::kInvalid, flags.file + ": no such file, and --set applies to files only"};
  RM_ASSIGN(const auto cluster, Cluster::Connect(flags.cluster));
  Result<Json> found = cluster->Job(JobName(flags.file));
  if (!found.ok())
    return Error{found.error().code, flags.file + ": no such file, and " + found.error().message};
  if (flags.uid == kNoUid) flags.uid = json::Text(json::Child(*found, "metadata"), "uid");
  const Json& status = json::Child(*found, "status");
  if (flags.context.attempt == 0) flags.context.attempt = json::Integer(status, "attempt", 1);
  if (flags.context.excluded_nodes.empty())
    for (const Json& node : json::Items(status, "excludedNodes"))
      (json::Text(node, "effect") == "PreferNoSchedule" ? flags.context.avoided_nodes
                                                        : flags.context.excluded_nodes)
          .emplace_back(json::Text(node, "name"));
  found->erase("status");
  api::Loaded loaded = api::FromStored(*found);
  if (!loaded.problems.empty()) return Error{Code::kInvalid, loaded.problems[0].ToString()};
  return std::move(loaded.job);
}

Status Render(RenderFlags flags) {
  // A file takes precedence over a job with the same name.
  std::error_code ignored;
  const bool is_file = flags.file == "-" || std::filesystem::exists(flags.file, ignored) ||
                       flags.file.find('.') != std::string::npos;
  RM_ASSIGN(const api::TrainingJob job, is_file ? FromFile(flags) : FromCluster(flags));
  flags.context.attempt = std::max<int64_t>(flags.context.attempt, 1);
  if (!flags.authority_file.empty()) {
    RM_ASSIGN(flags.context.coordinator_ca_pem, ReadFile(flags.authority_file, kMaxAuthorityBytes));
  }
  // The operator resolves `auto` by what the cluster supports. Every cluster supports gates.
  const std::string& gang = flags.gang.empty() ? job.spec.scheduling.gang : flags.gang;
  flags.context.gang = gang == "auto" ? wiring::Gang::kGate : Gangs().at(gang);
  const std::vector<int32_t> ranks = wiring::RanksOf(job, job.spec.workers.replicas);
  flags.context.size = static_cast<int32_t>(ranks.size());
  std::sort(flags.context.excluded_nodes.begin(), flags.context.excluded_nodes.end());

  for (const std::string& warning : wiring::TemplateWarnings(job))
    Print(stderr, "ringmaster: warning: {}\n", warning);
  const auto print = [](const Json& object) { Print(stdout, "---\n{}", api::YamlText(object)); };
  for (const Json& object : wiring::ObjectsOf(job, flags.uid, flags.context)) print(object);
  for (const int32_t rank : ranks) print(wiring::PodOf(job, flags.uid, rank, flags.context));
  return Ok();
}

}  // namespace

void AddRender(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  wiring::Context& context = flags->context;
  context.worker_image = "ringmaster-worker:" RINGMASTER_VERSION;
  context.coordinator_address = "COORDINATOR-HOST:PORT";
  context.coordinator_ca_pem = "AUTHORITY OF THE COORDINATOR (--ca FILE)\n";
  std::vector<std::string> gangs;
  for (const auto& [name, gang] : Gangs()) gangs.push_back(name);

  context.attempt = 0;  // not set
  CLI::App* command = app.add_subcommand("render", "Print what the operator would create for a job");
  command
      ->add_option("FILE_OR_JOB", flags->file,
                   "Manifest (YAML or JSON), - for standard input; if there is no such file, the name of a "
                   "job on a cluster")
      ->required();
  command
      ->add_option("--set", flags->sets, "spec.path=value: replace a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--attempt", context.attempt, "Attempt of the job (default: its newest, or 1)")
      ->check(CLI::Range(int64_t{1}, int64_t{999'999'999}));
  command->add_option("--gang", flags->gang, "Overrides spec.scheduling.gang (auto means gate)")
      ->check(CLI::IsMember(gangs));
  command->add_option("--excluded", context.excluded_nodes, "Nodes to exclude (comma-separated)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--host-ports", context.host_port_base, "First port of the job's range, for hostNetwork")
      ->check(CLI::Range(1, 65535));
  command->add_option("--image", context.worker_image, "Image of workers whose template sets none")
      ->capture_default_str();
  command->add_option("--coordinator", context.coordinator_address, "HOST:PORT of the coordinator");
  command->add_option("--ca", flags->authority_file, "File with the CA certificate of the coordinator (PEM)");
  command->add_option("--uid", flags->uid, "Uid of the TrainingJob, for owner references");
  AddClusterFlags(*command, flags->cluster);
  command->footer("Example:\n  ringmaster render job.yaml | kubectl apply --dry-run=server -f -");
  command->callback([flags, &exit_code] {
    const Status rendered = Render(*flags);
    exit_code = rendered.ok() ? kSucceeded : Refuse(rendered.error());
  });
}

}  // namespace ringmaster::cli
