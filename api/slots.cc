// SPDX-License-Identifier: Apache-2.0

#include "api/slots.h"

#include <algorithm>
#include <charconv>

#include "api/pod_template.h"

namespace ringmaster::api {
namespace {

constexpr int64_t kMostSlots = 999;

const Json* ResourcesOfWorker(const Workers& workers) {
  return MemberOf(TrainingContainer(workers.template_), "resources");
}

int64_t Whole(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

int64_t GpusIn(const Json* quantities) {
  int64_t gpus = 0;
  if (quantities == nullptr || !quantities->is_object()) return gpus;
  for (const auto& [name, quantity] : quantities->items()) {
    if (!IsGpu(name)) continue;
    if (quantity.is_string()) gpus += Whole(quantity.get_ref<const std::string&>());
    if (quantity.is_number_integer()) gpus += quantity.get<int64_t>();
  }
  return gpus;
}

}  // namespace

bool IsGpu(const std::string& resource) {
  return resource.ends_with(".com/gpu") || resource.starts_with("nvidia.com/gpu.") ||
         resource.starts_with("nvidia.com/mig-") || resource.starts_with("gpu.intel.com/");
}

int32_t SlotsOf(const Workers& workers) {
  int64_t slots = 0;
  if (workers.slots == "gpu") {
    const Json* resources = ResourcesOfWorker(workers);
    slots = GpusIn(MemberOf(resources, "limits"));
    if (slots == 0) slots = GpusIn(MemberOf(resources, "requests"));
  } else {
    slots = Whole(workers.slots);
  }
  return static_cast<int32_t>(std::clamp<int64_t>(slots, 1, kMostSlots));
}

bool RequestsGpus(const Workers& workers) {
  const Json* resources = ResourcesOfWorker(workers);
  return GpusIn(MemberOf(resources, "limits")) > 0 || GpusIn(MemberOf(resources, "requests")) > 0;
}

bool SlotsUnknown(const Workers& workers) {
  if (workers.slots != "gpu") return false;
  const Json* claims = MemberOf(ResourcesOfWorker(workers), "claims");
  return claims != nullptr && !claims->empty() && !RequestsGpus(workers);
}

std::string SharedGpuOf(const Workers& workers) {
  const Json* resources = ResourcesOfWorker(workers);
  for (const char* part : {"limits", "requests"}) {
    const Json* quantities = MemberOf(resources, part);
    if (quantities == nullptr || !quantities->is_object()) continue;
    for (const auto& [name, quantity] : quantities->items())
      if (name.starts_with("nvidia.com/mig-") || name == "nvidia.com/gpu.shared") return name;
  }
  return "";
}

}  // namespace ringmaster::api
