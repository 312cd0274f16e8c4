// SPDX-License-Identifier: Apache-2.0

// Objects of resource.k8s.io as drivers, users and the scheduler write them.
#include "operator/kube/backend/decode_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::kube {
namespace {

// As the example driver publishes it.
constexpr const char* kSlice = R"({"metadata": {"name": "node-0-gpu.example.com-x"}, "spec": {
  "driver": "gpu.example.com", "nodeName": "node-0",
  "pool": {"name": "pool-0", "generation": 3, "resourceSliceCount": 2}, "devices": [
    {"name": "gpu-0", "allowMultipleAllocations": false, "capacity": {"memory": {"value": "80Gi"}}, "attributes": {
      "index": {"int": 0}, "model": {"string": "LATEST-GPU-MODEL"}, "driverVersion": {"version": "1.0.0"},
      "healthy": {"bool": true}, "resource.kubernetes.io/pcieRoot": {"string": "pci0"}, "many": {"strings": ["a"]}}},
    {"name": "gpu-1", "allowMultipleAllocations": true, "nodeName": "node-1",
     "taints": [{"key": "a", "effect": "None"}, {"key": "b", "effect": "NoExecute"}]},
    {"name": "gpu-2", "taints": [{"key": "a", "effect": "None"}], "attributes": {"model": {"string": "LATEST-GPU-MODEL"}}}]}})";

TEST(DecodeDevices, ResourceSlice) {
  Interners interners;
  const auto slice = DecodeResourceSlice(Json::parse(kSlice), interners);
  EXPECT_EQ(slice->driver, "gpu.example.com");
  EXPECT_EQ(slice->pool, "pool-0");
  EXPECT_EQ(slice->generation, 3);
  EXPECT_EQ(slice->slices, 2);
  EXPECT_EQ(slice->node, "node-0");
  ASSERT_EQ(slice->devices.size(), 3u);
  std::map<std::string, core::DeviceValue> attributes;
  for (const auto& attribute : slice->devices[0].attributes) attributes[attribute->name] = attribute->value;
  EXPECT_EQ(attributes, (std::map<std::string, core::DeviceValue>{
                            {"gpu.example.com/index", int64_t{0}},
                            {"gpu.example.com/model", std::string("LATEST-GPU-MODEL")},
                            {"gpu.example.com/healthy", true},
                            {"resource.kubernetes.io/pcieRoot", std::string("pci0")}}));
  EXPECT_EQ(slice->devices[0].name, "gpu-0");
  EXPECT_FALSE(slice->devices[0].several || slice->devices[0].tainted);
  EXPECT_TRUE(slice->devices[1].several && slice->devices[1].tainted);
  EXPECT_EQ(slice->devices[1].node, "node-1");
  EXPECT_FALSE(slice->devices[2].tainted) << "an effect that only informs";
  ASSERT_EQ(slice->devices[2].attributes.size(), 1u);
  EXPECT_NE(std::find(slice->devices[0].attributes.begin(), slice->devices[0].attributes.end(),
                      slice->devices[2].attributes[0]),
            slice->devices[0].attributes.end())
      << "equal attributes are shared";
}

TEST(DecodeDevices, DeviceClass) {
  const Json object =
      Json::parse(R"({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu",
    "selectors": [{"cel": {"expression": "device.driver == 'a'"}}, {"other": {}}]}})");
  const auto record = DecodeDeviceClass(object, ReadMeta(object));
  EXPECT_EQ(record->name, "gpu");
  EXPECT_EQ(record->extended_resource, "example.com/gpu");
  EXPECT_EQ(record->selectors, (std::vector<std::string>{"device.driver == 'a'", ""}))
      << "the second is not evaluated";
}

core::ClaimTemplate Template(const std::string& requests) {
  return *DecodeClaimTemplate(
      Json::parse(R"({"spec": {"spec": {"devices": {"requests": [)" + requests + "]}}}}"));
}

TEST(DecodeDevices, ClaimTemplate) {
  const core::ClaimTemplate claim = Template(
      R"({"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4}},
         {"name": "b", "exactly": {"deviceClassName": "net", "selectors": [{"cel": {"expression": "true"}}],
                                   "tolerations": [{"operator": "Exists"}]}},
         {"name": "c", "exactly": {"deviceClassName": "gpu", "adminAccess": true}})");
  EXPECT_EQ(claim.uncounted, "");
  ASSERT_EQ(claim.requests.size(), 2u) << "a request of an administrator takes nothing";
  EXPECT_EQ(claim.requests[0].class_name, "gpu");
  EXPECT_EQ(claim.requests[0].count, 4);
  EXPECT_FALSE(claim.requests[0].tolerates);
  EXPECT_EQ(claim.requests[1].count, 1);
  EXPECT_EQ(claim.requests[1].selectors, std::vector<std::string>{"true"});
  EXPECT_TRUE(claim.requests[1].tolerates);
}

TEST(DecodeDevices, RequestsThatAreNotCounted) {
  for (const auto& [request, why] : std::vector<std::pair<const char*, const char*>>{
           {R"({"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]})",
            "it has firstAvailable"},
           {R"({"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})",
            "it asks for all devices"},
           {R"({"name": "a", "exactly": {"deviceClassName": "gpu", "derivedAttributes": [{}]}})",
            "it has derivedAttributes"},
           {R"({"name": "a", "newer": {}})", "it has an unknown request"}}) {
    const core::ClaimTemplate claim =
        Template(std::string(R"({"name": "b", "exactly": {"deviceClassName": "net"}}, )") + request);
    EXPECT_EQ(claim.uncounted, why);
    EXPECT_EQ(claim.requests.size(), 1u) << "the other request is counted";
  }
}

TEST(DecodeDevices, ResourceClaim) {
  Json object = Json::parse(R"({"metadata": {"namespace": "ml", "name": "a-0-gpus-x", "ownerReferences": [
      {"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": "u", "controller": true}]},
    "status": {"allocation": {"devices": {"results": [
      {"request": "a", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-1"},
      {"request": "b", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-2", "adminAccess": true}]}}}})");
  const auto claim = DecodeResourceClaim(object, ReadMeta(object));
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(claim->pod, "ml/a-0");
  EXPECT_EQ(claim->uid, "u");
  ASSERT_EQ(claim->devices.size(), 1u);
  EXPECT_EQ(claim->devices[0].driver + " " + claim->devices[0].pool + " " + claim->devices[0].device,
            "gpu.example.com node-0 gpu-1");
  object["metadata"].erase("ownerReferences");
  EXPECT_EQ(DecodeResourceClaim(object, ReadMeta(object))->pod, "");
  object["status"].erase("allocation");
  EXPECT_EQ(DecodeResourceClaim(object, ReadMeta(object)), nullptr);
}

}  // namespace
}  // namespace ringmaster::kube
