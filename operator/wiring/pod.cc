// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/launch.h"
#include "base/check.h"
#include "operator/wiring/agent_environment.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/eviction.h"
#include "operator/wiring/names.h"
#include "operator/wiring/network.h"
#include "operator/wiring/program.h"
#include "operator/wiring/resources.h"
#include "operator/wiring/security.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

// The prefix of the default volumes, which distinguishes them from the user's.
constexpr std::string_view kDefaultVolumes = "ringmaster-";
constexpr const char* kConfigVolume = "ringmaster-config";
constexpr const char* kMemoryVolume = "ringmaster-shm";
constexpr const char* kCheckpointVolume = "ringmaster-checkpoints";

constexpr int kTokenSeconds = 3600;
// The container runtime's default of 64 MiB is too small for UCX and NCCL. The limit reserves nothing.
constexpr const char* kSharedMemory = "8Gi";

Json ConfigVolume(const api::TrainingJob& job, const Context& context) {
  Json sources = Json::array();
  Json items = Json::array();
  for (const std::string& key : ConfigKeys(job, context)) items.push_back({{"key", key}, {"path", key}});
  if (!items.empty())
    sources.push_back(
        {{"configMap", {{"name", ConfigName(job.metadata.name)}, {"items", std::move(items)}}}});
  Json token = {{"serviceAccountToken",
                 {{"audience", kTokenAudience}, {"expirationSeconds", kTokenSeconds}, {"path", kTokenFile}}}};
  sources.push_back(std::move(token));
  return {{"name", kConfigVolume}, {"projected", {{"sources", std::move(sources)}}}};
}

void AddVolumes(const api::TrainingJob& job, const Context& context, Json& spec, Json& container) {
  Json volumes = Json::array();
  Json mounts = Json::array();
  if (UsesCoordinator(job)) {
    volumes.push_back(ConfigVolume(job, context));
    mounts.push_back({{"name", kConfigVolume}, {"mountPath", kConfigFolder}, {"readOnly", true}});
  }
  volumes.push_back(
      {{"name", kMemoryVolume}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", kSharedMemory}}}});
  mounts.push_back({{"name", kMemoryVolume}, {"mountPath", "/dev/shm"}});
  if (const auto& claim = job.spec.checkpoint.volumeClaim; !claim.empty()) {
    volumes.push_back({{"name", kCheckpointVolume}, {"persistentVolumeClaim", {{"claimName", claim}}}});
    mounts.push_back({{"name", kCheckpointVolume}, {"mountPath", CheckpointMount(job)}});
  }
  spec["volumes"] = std::move(volumes);
  container["volumeMounts"] = std::move(mounts);
}

std::set<std::string> MountedVolumes(const Json& spec) {
  std::set<std::string> mounted;
  for (const char* list : {"containers", "initContainers"}) {
    const Json* containers = Find(spec, {list});
    if (containers == nullptr) continue;
    for (const Json& container : *containers) {
      const Json* mounts = Find(container, {"volumeMounts"});
      if (mounts == nullptr) continue;
      for (const Json& mount : *mounts) mounted.insert(Text(mount, {"name"}));
    }
  }
  return mounted;
}

void DropUnmounted(Json& spec) {
  const std::set<std::string> mounted = MountedVolumes(spec);
  Json& volumes = ListIn(spec, "volumes");
  Json kept = Json::array();
  for (Json& volume : volumes) {
    const std::string name = Text(volume, {"name"});
    if (!name.starts_with(kDefaultVolumes) || mounted.contains(name)) kept.push_back(std::move(volume));
  }
  volumes = std::move(kept);
}

}  // namespace

Json PodDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, const Template& user) {
  Json container = {{"name", user.worker},
                    {"terminationMessagePath", kTerminationLog},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"env", AgentEnvironment(job, rank, context, HasCpuLimit(user))}};
  if (job.spec.framework == "native") {
    container["image"] = context.worker_image;
    container["command"] = Json::array({"ringmaster-agent"});
  }
  Json spec = {{"automountServiceAccountToken", false},
               {"enableServiceLinks", false},
               {"terminationGracePeriodSeconds", api::GraceSeconds(job.spec)}};
  if (const auto& priority = job.spec.scheduling.priorityClassName; !priority.empty())
    spec["priorityClassName"] = priority;
  AddVolumes(job, context, spec, container);
  if (api::RunsCommand(job.spec)) AddAgent(job, rank, context, user, spec, container);
  if (Json resources = DefaultResources(job, user); !resources.empty())
    container["resources"] = std::move(resources);
  Json metadata = {
      {"labels", {{"sidecar.istio.io/inject", "false"}}}};  // the proxy of a service mesh never exits
  AddEvictionDefaults(job, metadata);
  SecureByDefault(job, spec, container);
  AddNetworkDefaults(job, rank, context, metadata, spec, container);
  spec["containers"] = Json::array({std::move(container)});
  return {{"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

void PruneDefaults(const Template& user, Json& pod) {
  Json& spec = ObjectIn(pod, "spec");
  DropUnmounted(spec);
  DropContradictedDefaults(user, spec, WorkerContainer(pod, user.worker));
}

Json& WorkerContainer(Json& pod, const std::string& name) {
  Json* container = FindByKey(pod["spec"]["containers"], "name", name);
  CHECK(container != nullptr, "no container {}", name);
  return *container;
}

}  // namespace ringmaster::wiring
