// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/agent_environment.h"

#include <string>
#include <utility>

#include "api/launch.h"
#include "api/slots.h"
#include "operator/core/model.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/frameworks.h"
#include "operator/wiring/pod.h"

namespace ringmaster::wiring {

Json AgentEnvironment(const api::TrainingJob& job, int32_t rank, const Context& context, bool cpu_limit) {
  const bool trainers = api::RunsTrainers(job.spec);
  Json env = Json::array();
  const auto add = [&](const char* name, std::string value) {
    env.push_back({{"name", name}, {"value", std::move(value)}});
  };
  const auto add_from = [&](const char* name, Json source) {
    env.push_back({{"name", name}, {"valueFrom", std::move(source)}});
  };
  add("RINGMASTER_JOB", job.metadata.namespace_ + "/" + job.metadata.name);
  add("RINGMASTER_POD", core::PodName(job.metadata.name, context.attempt, rank));
  add("RINGMASTER_ATTEMPT", std::to_string(context.attempt));
  add_from("RINGMASTER_NODE", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}});
  if (UsesCoordinator(job)) {
    const std::string folder = kConfigFolder;
    if (trainers) add("RINGMASTER_JOB_FILE", folder + "/" + kJobKey);
    add("RINGMASTER_COORDINATOR", context.coordinator_address);
    if (!context.coordinator_ca_pem.empty()) add("RINGMASTER_CA_FILE", folder + "/" + kAuthorityKey);
    add("RINGMASTER_SECRET_FILE", folder + "/" + kTokenFile);
    add("RINGMASTER_TERMINATION_LOG", kTerminationLog);
    if (const int32_t slots = api::ProgramsPerWorker(job.spec); slots > 1)
      add("RINGMASTER_SLOTS", std::to_string(slots));
  }
  if (trainers) {
    add("RINGMASTER_STARTUP_SECONDS", std::to_string(job.spec.health.startupSeconds));
    add("RINGMASTER_STEP_SECONDS", job.spec.health.stepSeconds);
    // A CPU limit in time slices does not show in the affinity mask.
    if (cpu_limit) add_from("RINGMASTER_THREADS", {{"resourceFieldRef", {{"resource", "limits.cpu"}}}});
  }
  if (!UsesCoordinator(job)) AddRendezvous(job, rank, context, env);
  return env;
}

}  // namespace ringmaster::wiring
