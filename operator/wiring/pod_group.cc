// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/pod_group.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "api/launch.h"
#include "operator/core/model.h"
#include "operator/wiring/names.h"
#include "operator/wiring/native_gang.h"
#include "operator/wiring/pod_shape.h"
#include "operator/wiring/quantity.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

Json Group(const std::string& api_version, const api::TrainingJob& job, const std::string& job_uid,
           const Context& context, Json spec, const char* kind = "PodGroup") {
  Json group =
      NewObject(api_version.c_str(), kind, GroupName(job.metadata.name, context.attempt), job, job_uid);
  group["metadata"]["labels"][kAttemptLabel] = std::to_string(context.attempt);
  group["spec"] = std::move(spec);
  return group;
}

// Returns what the smallest gang requests in total. Volcano admits a group to its queue by it, and without it
// every group at once. Coscheduling reserves no node for a group while the cluster lacks it.
Json ResourcesOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context) {
  // Pods of a role are alike, except that the first worker may have another template.
  std::map<std::pair<std::string, bool>, std::pair<int32_t, int64_t>> kinds;  // a rank, and how many
  int32_t workers = std::max(context.size, 1);
  if (api::RunsPrograms(job.spec)) {
    for (const api::Role& role : job.spec.roles) workers -= api::HasPods(role) ? role.replicas : 0;
  }
  const bool master = api::FindRole(job.spec, api::kMaster) != nullptr;
  for (const int32_t rank : RanksOf(job, std::max(workers, 1))) {
    const auto kind = std::pair(core::RolePlaceOf(rank)->role, master && rank == 0);
    kinds.try_emplace(kind, rank, 0).first->second.second += 1;
  }
  std::map<std::string, int64_t> sum;
  for (const auto& [kind, of] : kinds) {
    const Json pod = PodOf(job, job_uid, of.first, context);
    for (const auto& [name, amount] : RequestsOf(pod["spec"])) {
      if (amount <= 0) continue;
      int64_t& total = sum[name];
      const int64_t more = amount > INT64_MAX / of.second ? INT64_MAX : amount * of.second;
      total = more > INT64_MAX - total ? INT64_MAX : total + more;
    }
  }
  Json total = Json::object();
  for (const auto& [name, amount] : sum) total[name] = QuantityText(name, amount);
  return total;
}

// Returns Volcano's form of the topology: it looks for a domain with room for the whole gang, whereas the
// pods' affinity lets the first pod choose one. Volcano names tiers of HyperNodes after the node labels that
// they were made from. Where there is no such tier, it goes by the affinity alone.
Json NetworkTopologyOf(const api::Topology& topology) {
  if (!topology.required.empty()) return {{"mode", "hard"}, {"highestTierName", topology.required}};
  if (!topology.preferred.empty()) return {{"mode", "soft"}, {"highestTierName", topology.preferred}};
  return {};
}

}  // namespace

Json GroupOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context) {
  const api::Scheduling& scheduling = job.spec.scheduling;
  Json spec;
  switch (context.gang) {
    case Gang::kNone:
    case Gang::kGate:
      return {};
    case Gang::kNative:
      return Group(std::string(kNativeGroup) + "/" + context.native->version, job, job_uid, context,
                   NativeGroupSpec(*context.native, job, context.size), context.native->kind);
    case Gang::kVolcano:
      spec = {{"minMember", context.size}};
      if (Json total = ResourcesOf(job, job_uid, context); !total.empty())
        spec["minResources"] = std::move(total);
      if (!scheduling.queue.empty()) spec["queue"] = scheduling.queue;
      if (std::string priority = api::PriorityClassOf(job.spec, job.spec.workers.template_);
          !priority.empty())
        spec["priorityClassName"] = std::move(priority);
      if (Json topology = NetworkTopologyOf(scheduling.topology); !topology.is_null())
        spec["networkTopology"] = std::move(topology);
      return Group("scheduling.volcano.sh/v1beta1", job, job_uid, context, std::move(spec));
    case Gang::kCoscheduling:
      spec = {{"minMember", context.size}, {"scheduleTimeoutSeconds", scheduling.timeoutSeconds}};
      if (Json total = ResourcesOf(job, job_uid, context); !total.empty())
        spec["minResources"] = std::move(total);
      return Group("scheduling.x-k8s.io/v1alpha1", job, job_uid, context, std::move(spec));
  }
  return {};
}

void JoinGroup(const api::TrainingJob& job, const Context& context, Json& pod) {
  const std::string group = GroupName(job.metadata.name, context.attempt);
  Json& metadata = ObjectIn(pod, "metadata");
  Json& spec = ObjectIn(pod, "spec");
  switch (context.gang) {
    case Gang::kNone:
      return;
    case Gang::kGate:
      AddOnce(ListIn(spec, "schedulingGates"), {{"name", kGangGate}});
      return;
    case Gang::kNative:
      JoinNativeGroup(*context.native, group, spec);
      return;
    case Gang::kVolcano:
      ObjectIn(metadata, "annotations")["scheduling.k8s.io/group-name"] = group;
      break;
    case Gang::kCoscheduling:
      ObjectIn(metadata, "labels")["scheduling.x-k8s.io/pod-group"] = group;
      break;
  }
  // Another scheduler, such as the default one, would bind each pod alone.
  if (!spec.contains("schedulerName")) spec["schedulerName"] = SchedulerOf(context.gang, context.schedulers);
}

std::string SchedulerOf(Gang gang, const SchedulerNames& names) {
  if (gang == Gang::kVolcano) return names.volcano;
  return gang == Gang::kCoscheduling ? names.coscheduling : std::string();
}

}  // namespace ringmaster::wiring
