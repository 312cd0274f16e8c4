// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/program.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "api/launch.h"
#include "api/slots.h"
#include "operator/core/model.h"
#include "operator/wiring/network.h"
#include "operator/wiring/security.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kAgentVolume = "ringmaster-agent";
constexpr const char* kInitContainer = "ringmaster-agent";
constexpr const char* kAgentProgram = "ringmaster-agent";

std::string AgentPath() { return fmt::format("{}/bin/{}", kAgentFolder, kAgentProgram); }

Json Mount() { return {{"name", kAgentVolume}, {"mountPath", kAgentFolder}}; }

// The init container meets the Pod Security level "restricted", whatever the user's container needs. Limits
// keep a pod in its quality of service, and in a namespace whose quota asks for them.
Json InitContainer(const Context& context) {
  const Json resources = {{"cpu", "100m"}, {"memory", "64Mi"}};
  return {{"name", kInitContainer},
          {"image", context.worker_image},
          {"command", {kAgentProgram, "install", AgentPath()}},
          {"terminationMessagePolicy", "FallbackToLogsOnError"},
          {"resources", {{"limits", resources}, {"requests", resources}}},
          {"securityContext",
           {{"allowPrivilegeEscalation", false},
            {"capabilities", {{"drop", Json::array({"ALL"})}}},
            {"readOnlyRootFilesystem", true},
            {"runAsNonRoot", true},
            {"runAsUser", kWorkerUser},
            {"runAsGroup", kWorkerUser}}},
          {"volumeMounts", Json::array({Mount()})}};
}

// Returns the names of the user's variables that Kubernetes computes for each pod, separated by commas.
std::string ComputedVariables(const Template& user) {
  std::string names;
  const Json* container = UserContainer(user);
  const Json* env = container != nullptr ? Find(*container, {"env"}) : nullptr;
  if (env == nullptr) return names;
  for (const Json& variable : *env) {
    if (Find(variable, {"valueFrom", "fieldRef"}) == nullptr &&
        Find(variable, {"valueFrom", "resourceFieldRef"}) == nullptr)
      continue;
    const std::string name = Text(variable, {"name"});
    if (!name.starts_with("RINGMASTER_")) names += (names.empty() ? "" : ",") + name;
  }
  return names;
}

}  // namespace

void AddAgent(const api::TrainingJob& job, int32_t rank, const Context& context, const Template& user,
              Json& spec, Json& container) {
  ListIn(spec, "initContainers").push_back(InitContainer(context));
  ListIn(spec, "volumes").push_back({{"name", kAgentVolume}, {"emptyDir", Json::object()}});
  ListIn(container, "volumeMounts").push_back(Mount());
  Json& env = ListIn(container, "env");
  const auto add = [&](const char* name, std::string value) {
    env.push_back({{"name", name}, {"value", std::move(value)}});
  };
  const std::string stop_seconds = std::to_string(job.spec.restart.stopSeconds);
  if (api::UsesLibrary(job.spec)) return add("RINGMASTER_STOP_SECONDS", stop_seconds);
  add("RINGMASTER_FRAMEWORK", job.spec.framework);
  // Other workers reach this one by its address: it needs no name server, and a pod keeps it for its life.
  env.push_back(
      {{"name", "RINGMASTER_ADDRESS"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  if (const auto place = core::RolePlaceOf(rank); place && !place->role.empty())
    add("RINGMASTER_ROLE", place->role);
  add("RINGMASTER_STOP_SECONDS", stop_seconds);
  add("RINGMASTER_STEP_SECONDS", job.spec.health.stepSeconds);
  add("RINGMASTER_SILENCE_SECONDS", std::to_string(job.spec.launch.silenceSeconds));
  add("RINGMASTER_SOCKET_FOLDER", kAgentFolder);
  if (api::LaunchesRanks(job.spec)) {
    add("RINGMASTER_MPI", api::LaunchedBy(job.spec));
    add("RINGMASTER_MPI_SLOTS", std::to_string(api::SlotsOf(job.spec.workers)));
    // Ranks in other pods must not get them.
    if (std::string computed = ComputedVariables(user); !computed.empty())
      add("RINGMASTER_MPI_POD_VARIABLES", std::move(computed));
    if (api::HasLiveWorkers(job.spec))
      add("RINGMASTER_MPI_MIN", std::to_string(job.spec.workers.EffectiveMin()));
  }
  if (const auto& modules = job.spec.launch.preload; !modules.empty())
    add("RINGMASTER_PRELOAD", fmt::format("{}", fmt::join(modules, ",")));
  if (context.host_port_base > 0)
    add("RINGMASTER_PORT_BASE", std::to_string(context.host_port_base + rank * HostPortsPerPod(job.spec)));
}

void WrapCommand(const api::TrainingJob& job, Json& container) {
  Json command = Json::array({AgentPath(), api::UsesLibrary(job.spec) ? "train" : "run", "--"});
  if (const auto theirs = container.find("command"); theirs != container.end() && theirs->is_array())
    for (Json& word : *theirs) command.push_back(std::move(word));
  // The agents of such workers run what the launcher asks for.
  if (api::LaunchesRanks(job.spec) && command.size() == 3)
    command = Json::array({AgentPath(), "run", "--", AgentPath(), "ranks"});
  container["command"] = std::move(command);
}

}  // namespace ringmaster::wiring
