// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/config_map.h"

#include <utility>

#include "api/launch.h"
#include "api/load.h"
#include "operator/wiring/names.h"

namespace ringmaster::wiring {

namespace {

// The user's template may hold secrets. With the library the job is not valid without one that has a command;
// that of the pod begins with the agent.
Json TemplateForWorkers(const api::TrainingJob& job) {
  if (!api::UsesLibrary(job.spec)) return {};
  Json container = {{"name", "worker"}, {"command", Json::array({"ringmaster-agent"})}};
  return {{"spec", {{"containers", Json::array({std::move(container)})}}}};
}

}  // namespace

std::string CheckpointMount(const api::TrainingJob& job) {
  const auto& checkpoint = job.spec.checkpoint;
  return checkpoint.path.empty() && !checkpoint.volumeClaim.empty() ? "/checkpoints" : checkpoint.path;
}

std::string CheckpointPath(const api::TrainingJob& job) {
  const std::string mount = CheckpointMount(job);
  // Programs find their checkpoints themselves.
  if (!job.spec.checkpoint.path.empty() || mount.empty() || !api::RunsTrainers(job.spec)) return mount;
  return mount + "/" + job.metadata.namespace_ + "/" + job.metadata.name;
}

api::TrainingJob JobForWorkers(const api::TrainingJob& job) {
  api::TrainingJob result;
  result.apiVersion = job.apiVersion;
  result.kind = job.kind;
  result.metadata.name = job.metadata.name;
  result.metadata.namespace_ = job.metadata.namespace_;
  result.spec = job.spec;
  result.spec.workers.template_ = TemplateForWorkers(job);
  result.spec.checkpoint.path = CheckpointPath(job);
  const api::Spec defaults;
  result.spec.suspend = defaults.suspend;
  result.spec.managedBy = defaults.managedBy;
  result.spec.scheduling = defaults.scheduling;
  result.spec.restart = defaults.restart;
  result.spec.lifecycle = defaults.lifecycle;
  return result;
}

std::vector<std::string> ConfigKeys(const api::TrainingJob& job, const Context& context) {
  std::vector<std::string> keys;
  if (api::RunsTrainers(job.spec)) keys.emplace_back(kJobKey);
  if (UsesCoordinator(job) && !context.coordinator_ca_pem.empty()) keys.emplace_back(kAuthorityKey);
  return keys;
}

Json ConfigMapOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context) {
  if (!UsesCoordinator(job)) return {};
  Json data = Json::object();
  for (const std::string& key : ConfigKeys(job, context)) {
    if (key == kAuthorityKey) {
      data[key] = context.coordinator_ca_pem;
    } else {
      const Json content = api::ToJson(JobForWorkers(job));
      data[key] = content.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    }
  }
  Json map = NewObject("v1", "ConfigMap", ConfigName(job.metadata.name), job, job_uid);
  map["data"] = std::move(data);
  return map;
}

}  // namespace ringmaster::wiring
