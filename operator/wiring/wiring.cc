// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/wiring.h"

#include <string>
#include <utility>

#include "api/launch.h"
#include "api/slots.h"
#include "base/check.h"
#include "operator/core/model.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/merge.h"
#include "operator/wiring/names.h"
#include "operator/wiring/network.h"
#include "operator/wiring/placement.h"
#include "operator/wiring/pod.h"
#include "operator/wiring/pod_group.h"
#include "operator/wiring/program.h"
#include "operator/wiring/security.h"
#include "operator/wiring/service.h"
#include "operator/wiring/template.h"
#include "operator/wiring/tree.h"
#include "operator/wiring/workload.h"

namespace ringmaster::wiring {
namespace {

// Sets what the template cannot change: names, labels, owner, host name, restart policy, and which container
// trains.
void Identify(const api::TrainingJob& job, const std::string& job_uid, int32_t rank, const Context& context,
              const std::string& worker, Json& pod) {
  const std::string name = core::PodName(job.metadata.name, context.attempt, rank);
  Json object = NewObject("v1", "Pod", name, job, job_uid);
  Json& metadata = ObjectIn(pod, "metadata");
  Json& labels = ObjectIn(metadata, "labels");
  labels.update(PodLabels(job, context.attempt, rank));
  object["metadata"]["labels"] = std::move(labels);
  if (metadata.contains("annotations"))
    object["metadata"]["annotations"] = std::move(metadata["annotations"]);
  object["metadata"]["annotations"][kWorkerAnnotation] = worker;
  Json& spec = pod["spec"];
  spec["restartPolicy"] = "Never";
  spec["hostname"] = name;
  if (NeedsService(job)) spec["subdomain"] = ServiceName(job.metadata.name);
  object["spec"] = std::move(spec);
  pod = std::move(object);
}

}  // namespace

bool UsesCoordinator(const api::TrainingJob& job) { return api::RestartsInPlace(job.spec); }

std::vector<Json> ObjectsOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context) {
  std::vector<Json> objects;
  if (NeedsService(job)) objects.push_back(ServiceOf(job, job_uid, context.attempt));
  if (Json map = ConfigMapOf(job, job_uid, context); !map.is_null()) objects.push_back(std::move(map));
  if (Json map = NetworkConfigOf(job, job_uid); !map.is_null()) objects.push_back(std::move(map));
  if (Json group = GroupOf(job, job_uid, context); !group.is_null()) objects.push_back(std::move(group));
  return objects;
}

namespace {

// Renders a pod of the workers' template, whatever the role of the rank.
Json PodOfTemplate(const api::TrainingJob& job, const std::string& job_uid, int32_t rank,
                   const Context& context) {
  const Template user = ReadTemplate(job);
  Json pod = StrategicMerge(PodDefaults(job, rank, context, user), user.value);
  PruneDefaults(user, pod);
  if (api::RunsCommand(job.spec)) WrapCommand(job, WorkerContainer(pod, user.worker));
  if (job.spec.network.rdma) AllowPinnedMemory(WorkerContainer(pod, user.worker));
  AddNetworkVariables(job, WorkerContainer(pod, user.worker));
  Place(job, rank, context, pod["spec"]);
  JoinGroup(job, context, pod);
  Admit(context.admission, pod);
  Identify(job, job_uid, rank, context, user.worker, pod);
  return pod;
}

}  // namespace

api::TrainingJob JobOfRole(api::TrainingJob job, const std::string& role, int32_t index) {
  Json own = api::TemplateOf(job.spec, role, index);
  // The launcher passes the slots of each worker to mpirun or horovodrun.
  if (!role.empty())
    job.spec.workers.slots =
        api::LaunchesRanks(job.spec) ? std::to_string(api::SlotsOf(job.spec.workers)) : "1";
  // It runs no rank: the devices of the workers would be lost to it, or keep it from starting.
  if (role == api::kLauncher) job.spec.network.rdma.reset();
  job.spec.workers.template_ = std::move(own);
  return job;
}

std::vector<int32_t> RanksOf(const api::TrainingJob& job, int32_t workers) {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < workers; ++rank) ranks.push_back(rank);
  if (!api::RunsPrograms(job.spec)) return ranks;
  for (const api::Role& role : job.spec.roles) {
    for (int32_t i = 0; api::HasPods(role) && i < role.replicas; ++i)
      ranks.push_back(core::RankInRole(role.name, i));
  }
  return ranks;
}

Json PodOf(const api::TrainingJob& job, const std::string& job_uid, int32_t rank, const Context& context) {
  if (job.spec.roles.empty()) return PodOfTemplate(job, job_uid, rank, context);
  const auto place = core::RolePlaceOf(rank);
  CHECK(place.has_value(), "rank {}", rank);
  return PodOfTemplate(JobOfRole(job, place->role, place->index), job_uid, rank, context);
}

}  // namespace ringmaster::wiring
