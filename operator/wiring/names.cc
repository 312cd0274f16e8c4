// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/names.h"

#include "operator/core/model.h"

namespace ringmaster::wiring {
namespace {

constexpr size_t kLongestLabelValue = 63;

}  // namespace

std::string ServiceName(const std::string& job) { return "workers-" + job; }

std::string ConfigName(const std::string& job) { return job + "-config"; }

std::string NetworkConfigName(const std::string& job) { return job + "-network"; }

std::string GroupName(const std::string& job, int64_t attempt) { return job + "-" + std::to_string(attempt); }

Json JobLabels(const api::TrainingJob& job) {
  Json labels = {{"app.kubernetes.io/name", "trainingjob"},
                 {"app.kubernetes.io/instance", job.metadata.name},
                 {"app.kubernetes.io/managed-by", "ringmaster"},
                 {kJobLabel, job.metadata.name},
                 // The operator creates them again for a restored job. Restored ones would have no owner.
                 {kExcludeFromBackupLabel, "true"}};
  const std::string& queue = job.spec.scheduling.queue;
  if (!queue.empty() && queue.size() <= kLongestLabelValue) labels[kQueueLabel] = queue;
  return labels;
}

Json PodLabels(const api::TrainingJob& job, int64_t attempt, int32_t rank) {
  Json labels = JobLabels(job);
  const core::RolePlace place = core::RolePlaceOf(rank).value_or(core::RolePlace{"", rank});
  const std::string role = place.role.empty() ? "worker" : place.role;
  labels["app.kubernetes.io/component"] = role;
  labels[kAttemptLabel] = std::to_string(attempt);
  labels[kRankLabel] = std::to_string(place.index);
  if (!job.spec.roles.empty()) labels[kRoleLabel] = role;
  return labels;
}

Json NewObject(const std::string& api_version, const std::string& kind, const std::string& name,
               const api::TrainingJob& job, const std::string& job_uid) {
  Json owner = {{"apiVersion", job.apiVersion}, {"kind", job.kind},
                {"name", job.metadata.name},    {"uid", job_uid},
                {"controller", true},           {"blockOwnerDeletion", true}};
  return {{"apiVersion", api_version},
          {"kind", kind},
          {"metadata",
           {{"name", name},
            {"namespace", job.metadata.namespace_},
            {"labels", JobLabels(job)},
            {"ownerReferences", Json::array({std::move(owner)})}}}};
}

}  // namespace ringmaster::wiring
