#include "operator/wiring/names.h"

#include "operator/core/model.h"

namespace ringmaster::wiring {
namespace {

std::string QueueLabel(const std::string& queue) {
  return queue.size() <= core::kLongestNamePart ? queue : core::NamePart(queue);
}

}  // namespace

std::string ServiceName(const std::string& job) {
  const bool letter = job.front() >= 'a' && job.front() <= 'z';
  return (letter ? "" : "job-") + core::NamePart(job) + "-workers";
}

std::string ConfigName(const std::string& job) { return core::NamePart(job) + "-config"; }

std::string NetworkConfigName(const std::string& job) { return core::NamePart(job) + "-network"; }

std::string GroupName(const std::string& job, int64_t attempt) {
  return core::NamePart(job) + "-" + std::to_string(attempt);
}

Json JobLabels(const api::TrainingJob& job) {
  Json labels = {{"app.kubernetes.io/name", "trainingjob"},
                 {"app.kubernetes.io/instance", job.metadata.name},
                 {"app.kubernetes.io/managed-by", "ringmaster"},
                 {kJobLabel, job.metadata.name}};
  if (!job.spec.scheduling.queue.empty()) labels[kQueueLabel] = QueueLabel(job.spec.scheduling.queue);
  return labels;
}

Json PodLabels(const api::TrainingJob& job, int64_t attempt, int32_t rank) {
  Json labels = JobLabels(job);
  labels["app.kubernetes.io/component"] = "worker";
  labels[kAttemptLabel] = std::to_string(attempt);
  labels[kRankLabel] = std::to_string(rank);
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
