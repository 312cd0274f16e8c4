// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/decode_devices.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ringmaster::kube {
namespace {

std::vector<std::string> SelectorsOf(const Json& object) {
  std::vector<std::string> selectors;
  for (const Json& selector : json::Items(object, "selectors"))
    selectors.emplace_back(json::Text(json::Child(selector, "cel"), "expression"));  // empty: of another kind
  return selectors;
}

std::optional<core::DeviceValue> ValueOf(const Json& attribute) {
  if (const Json& value = json::Child(attribute, "string"); value.is_string())
    return value.get<std::string>();
  if (const Json& value = json::Child(attribute, "int"); value.is_number_integer())
    return value.get<int64_t>();
  if (const Json& value = json::Child(attribute, "bool"); value.is_boolean()) return value.get<bool>();
  return std::nullopt;
}

core::Device DecodeDevice(const Json& object, const std::string& driver, Interners& interners) {
  core::Device device;
  device.name = json::Text(object, "name");
  device.node = json::Text(object, "nodeName");
  device.several = json::Flag(object, "allowMultipleAllocations");
  for (const Json& taint : json::Items(object, "taints")) {
    const std::string_view effect = json::Text(taint, "effect");
    device.tainted = device.tainted || effect == "NoSchedule" || effect == "NoExecute";
  }
  const Json& attributes = json::Child(object, "attributes");
  if (!attributes.is_object()) return device;
  for (const auto& [name, attribute] : attributes.items()) {
    auto value = ValueOf(attribute);
    if (!value) continue;
    // A name without a domain is in that of the driver.
    const bool qualified = name.find('/') != std::string::npos;
    device.attributes.push_back(
        interners.attributes.Intern({qualified ? name : driver + "/" + name, *std::move(value)}));
  }
  device.attributes.shrink_to_fit();
  return device;
}

}  // namespace

std::shared_ptr<const core::DeviceSlice> DecodeResourceSlice(const Json& object, Interners& interners) {
  const Json& spec = json::Child(object, "spec");
  const Json& pool = json::Child(spec, "pool");
  auto slice = std::make_shared<core::DeviceSlice>();
  slice->driver = json::Text(spec, "driver");
  slice->pool = json::Text(pool, "name");
  slice->generation = json::Integer(pool, "generation");
  slice->slices = json::Integer(pool, "resourceSliceCount");
  slice->node = json::Text(spec, "nodeName");
  const Json& devices = json::Items(spec, "devices");
  slice->devices.reserve(devices.size());
  for (const Json& device : devices) slice->devices.push_back(DecodeDevice(device, slice->driver, interners));
  return slice;
}

std::shared_ptr<const core::DeviceClass> DecodeDeviceClass(const Json& object, const Meta& meta) {
  const Json& spec = json::Child(object, "spec");
  auto record = std::make_shared<core::DeviceClass>();
  record->name = meta.name;
  record->selectors = SelectorsOf(spec);
  record->extended_resource = json::Text(spec, "extendedResourceName");
  return record;
}

std::shared_ptr<const core::ClaimTemplate> DecodeClaimTemplate(const Json& object) {
  auto record = std::make_shared<core::ClaimTemplate>();
  const Json& claim = json::Child(json::Child(object, "spec"), "spec");
  for (const Json& item : json::Items(json::Child(claim, "devices"), "requests")) {
    const Json& exactly = json::Child(item, "exactly");
    const std::string_view mode = json::Text(exactly, "allocationMode");
    if (json::Flag(exactly, "adminAccess")) continue;  // takes no device from others
    const char* why = !json::Items(item, "firstAvailable").empty()         ? "it has firstAvailable"
                      : !exactly.is_object()                               ? "it has an unknown request"
                      : !mode.empty() && mode != "ExactCount"              ? "it asks for all devices"
                      : !json::Items(exactly, "derivedAttributes").empty() ? "it has derivedAttributes"
                                                                           : nullptr;
    if (why != nullptr) {
      record->uncounted = why;
      continue;
    }
    core::DeviceRequest& request = record->requests.emplace_back();
    request.class_name = json::Text(exactly, "deviceClassName");
    request.selectors = SelectorsOf(exactly);
    request.count = std::clamp<int64_t>(json::Integer(exactly, "count", 1), 0, INT32_MAX);
    request.tolerates = !json::Items(exactly, "tolerations").empty();
  }
  return record;
}

std::shared_ptr<const core::DeviceClaim> DecodeResourceClaim(const Json& object, const Meta& meta) {
  const Json& allocation = json::Child(json::Child(object, "status"), "allocation");
  if (!allocation.is_object()) return nullptr;
  auto record = std::make_shared<core::DeviceClaim>();
  const Json& owner = ControllerOf(object);
  if (json::Text(owner, "kind") == "Pod") {
    record->pod = meta.namespace_ + "/" + std::string(json::Text(owner, "name"));
    record->uid = json::Text(owner, "uid");
  }
  for (const Json& result : json::Items(json::Child(allocation, "devices"), "results")) {
    if (json::Flag(result, "adminAccess")) continue;
    record->devices.push_back({std::string(json::Text(result, "driver")),
                               std::string(json::Text(result, "pool")),
                               std::string(json::Text(result, "device"))});
  }
  return record;
}

}  // namespace ringmaster::kube
