// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/resources.h"

#include "api/slots.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

bool HasMember(const Json& container, const char* part, bool (*wanted)(const std::string&)) {
  const Json* quantities = Find(container, {"resources", part});
  if (quantities == nullptr || !quantities->is_object()) return false;
  for (const auto& [name, quantity] : quantities->items()) {
    if (wanted(name) && !quantity.is_null()) return true;
  }
  return false;
}

}  // namespace

bool HasGpu(const Json& container) {
  return HasMember(container, "limits", api::IsGpu) || HasMember(container, "requests", api::IsGpu);
}

bool HasCpuLimit(const Template& user) {
  const Json* container = UserContainer(user);
  return container != nullptr &&
         HasMember(*container, "limits", [](const std::string& name) { return name == "cpu"; });
}

Json DefaultResources(const api::TrainingJob& job, const Template& user) {
  Json resources = Json::object();
  const auto& rdma = job.spec.network.rdma;
  if (rdma && !rdma->resource.empty()) resources["limits"][rdma->resource] = std::to_string(rdma->count);
  const Json* container = UserContainer(user);
  const Json* claims = container != nullptr ? Find(*container, {"resources", "claims"}) : nullptr;
  const bool chosen = container != nullptr && (HasGpu(*container) || (claims != nullptr && !claims->empty()));
  if (job.spec.workers.slots == "gpu" && !chosen) resources["limits"]["nvidia.com/gpu"] = "1";
  return resources;
}

}  // namespace ringmaster::wiring
