// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/native_gang.h"

#include <string>
#include <utility>

#include "api/launch.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kGroupInWorkload = "pods";

bool IsWorkload(const NativeApi& api) { return std::string_view(api.kind) == "Workload"; }

}  // namespace

const NativeApi* FindNativeApi(std::string_view version) {
  for (const NativeApi& api : kNativeApis)
    if (version == api.version) return &api;
  return nullptr;
}

Json NativeGroupSpec(const NativeApi& api, const api::TrainingJob& job, int32_t min) {
  Json policy = {{"gang", {{"minCount", min}}}};
  if (IsWorkload(api)) {
    const Json group = {{"name", kGroupInWorkload}, {"policy", std::move(policy)}};
    const std::string owner = job.apiVersion.substr(0, job.apiVersion.find('/'));
    return {{"controllerRef", {{"apiGroup", owner}, {"kind", job.kind}, {"name", job.metadata.name}}},
            {"podGroups", Json::array({group})}};
  }
  Json spec = {{"schedulingPolicy", std::move(policy)}};
  if (std::string priority = api::PriorityClassOf(job.spec, job.spec.workers.template_); !priority.empty())
    spec["priorityClassName"] = std::move(priority);
  return spec;
}

void JoinNativeGroup(const NativeApi& api, const std::string& group, Json& pod_spec) {
  if (IsWorkload(api))
    pod_spec["workloadRef"] = {{"name", group}, {"podGroup", kGroupInWorkload}};
  else
    pod_spec["schedulingGroup"] = {{"podGroupName", group}};
}

}  // namespace ringmaster::wiring
