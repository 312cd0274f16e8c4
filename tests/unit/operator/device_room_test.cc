// SPDX-License-Identifier: Apache-2.0

// DeviceRoom: the devices of claims as amounts, and gangs that want the same ones.
#include "operator/core/capacity/device_room.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "operator/core/capacity/gang_room.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {
namespace {

constexpr const char* kClass = "gpu.example.com";
constexpr const char* kLarge = R"(device.attributes["gpu.example.com"].model == "LARGE")";

NodeFacts NodeOf(const std::string& name) {
  NodeFacts node;
  node.name = name;
  node.allocatable = {{"cpu", 64'000}, {"pods", 110}};
  return node;
}

Device Gpu(int index, const char* model = "SMALL") {
  Device device;
  device.name = fmt::format("gpu-{}", index);
  device.attributes.push_back(
      std::make_shared<const DeviceAttribute>(DeviceAttribute{"gpu.example.com/model", std::string(model)}));
  return device;
}

// A pool of one slice with the name of its node.
DeviceSlice SliceOf(const std::string& node, int gpus) {
  DeviceSlice slice{kClass, node, 1, 1, node, {}};
  for (int i = 0; i < gpus; ++i) slice.devices.push_back(Gpu(i));
  return slice;
}

// What the API server has.
struct Objects {
  std::vector<DeviceSlice> slices;
  std::vector<DeviceClass> classes = {{kClass, {"device.driver == 'gpu.example.com'"}, ""}};
  std::vector<ClaimTemplate> templates;
  std::vector<DeviceClaim> claims;
  std::set<std::string> own;  // NAMESPACE/NAME of pods

  DeviceRoom Room() const { return DeviceRoom(View()); }
  DeviceRoom::View View() const {
    DeviceRoom::View view;
    for (const auto& one : slices) view.slices.push_back(std::make_shared<const DeviceSlice>(one));
    for (const auto& one : classes) view.classes.push_back(std::make_shared<const DeviceClass>(one));
    for (const auto& one : templates) view.templates.push_back(std::make_shared<const ClaimTemplate>(one));
    for (const auto& one : claims) view.claims.push_back(std::make_shared<const DeviceClaim>(one));
    view.is_own = [this](const std::string& pod, const std::string& uid) {
      return uid == "u" && own.contains(pod);
    };
    return view;
  }
};

Objects TwoNodes(int gpus = 8) {
  Objects objects;
  objects.slices = {SliceOf("n0", gpus), SliceOf("n1", gpus)};
  return objects;
}

ClaimTemplate Claim(int64_t count, std::vector<std::string> selectors = {}) {
  return {{{kClass, std::move(selectors), count}}};
}

Capacity::Shape ShapeOf(const DeviceRoom& room, const ClaimTemplate& claim) {
  PodShape shape;
  shape.requests = {{"cpu", 1'000}};
  shape.claims = {"gpus"};
  return std::make_shared<const PodShape>(room.Count(shape, {std::make_shared<const ClaimTemplate>(claim)}));
}

Capacity CapacityOf(const DeviceRoom& room, const std::vector<std::string>& nodes = {"n0", "n1"}) {
  Capacity capacity;
  for (const std::string& name : nodes) {
    NodeFacts node = NodeOf(name);
    for (const auto& [resource, amount] : room.OfNode(node)) node.allocatable[resource] = amount;
    capacity.SetNode(node);
  }
  return capacity;
}

int32_t RoomFor(const Objects& objects, const ClaimTemplate& claim) {
  Objects all = objects;
  all.templates.push_back(claim);
  const DeviceRoom room = all.Room();
  return CapacityOf(room).RoomFor(ShapeOf(room, claim), 100);
}

std::string MissingFor(const Objects& objects, const ClaimTemplate& claim, int32_t pods) {
  Objects all = objects;
  all.templates.push_back(claim);
  const DeviceRoom room = all.Room();
  return CapacityOf(room).FitOf(ShapeOf(room, claim), pods).missing;
}

TEST(DeviceRoom, NodesHaveTheDevicesOfTheirSlices) {
  EXPECT_EQ(RoomFor(TwoNodes(), Claim(8)), 2);
  EXPECT_EQ(RoomFor(TwoNodes(), Claim(3)), 4);
  EXPECT_EQ(RoomFor(TwoNodes(), Claim(9)), 0);
  EXPECT_EQ(MissingFor(TwoNodes(), Claim(8), 3),
            "needs 8 devices of gpu.example.com on 3 nodes; 2 nodes have room");
  EXPECT_EQ(MissingFor(TwoNodes(), Claim(9), 1),
            "needs 9 devices of gpu.example.com on 1 nodes; 0 nodes have room (other nodes: 2 full)");
}

TEST(DeviceRoom, TwoGangsThatEachFitAloneNeverBothStart) {
  Objects objects = TwoNodes();
  objects.templates = {Claim(8), Claim(5)};
  const DeviceRoom room = objects.Room();
  Capacity capacity = CapacityOf(room);
  const Capacity::Shape one = ShapeOf(room, Claim(8));
  const Capacity::Shape other = ShapeOf(room, Claim(5));
  EXPECT_EQ(capacity.RoomFor(one, 2), 2);
  EXPECT_EQ(capacity.RoomFor(other, 2), 2);
  ASSERT_TRUE(capacity.Reserve({"ml/a-0", "ml/a-1"}, one));
  EXPECT_FALSE(capacity.Reserve({"ml/b-0", "ml/b-1"}, other));
  // Also while its pods are visible to the scheduler, and bound.
  capacity.ExpectPod("ml/a-0", one);
  capacity.ExpectPod("ml/a-1", one);
  EXPECT_EQ(capacity.RoomFor(other, 2), 0);
  capacity.SetPod("ml/a-0", one->requests, "n0");
  capacity.SetPod("ml/a-1", one->requests, "n1");
  EXPECT_EQ(capacity.RoomFor(other, 2), 0);
  capacity.RemovePod("ml/a-0");
  EXPECT_EQ(capacity.RoomFor(other, 2), 1);
  capacity.RemovePod("ml/a-1");
  EXPECT_TRUE(capacity.Reserve({"ml/b-0", "ml/b-1"}, other));
}

// The head of the queue claims devices that running pods of the operator hold.
TEST(DeviceRoom, AWaitingGangClaimsDevicesThatPodsHold) {
  Objects objects = TwoNodes();
  objects.templates = {Claim(8)};
  objects.own = {"ml/a-0"};
  objects.claims = {{"ml/a-0", "u", {}}};
  for (int i = 0; i < 8; ++i) objects.claims[0].devices.push_back({kClass, "n0", fmt::format("gpu-{}", i)});
  const DeviceRoom room = objects.Room();
  Capacity capacity = CapacityOf(room);
  const Capacity::Shape shape = ShapeOf(room, Claim(8));
  capacity.SetPod("ml/a-0", room.RequestsOf({{"cpu", 1'000}}, *shape, 1, room.TakenBy("ml/a-0", "u")), "n0");
  EXPECT_EQ(capacity.RoomFor(shape, 2), 1);
  EXPECT_TRUE(capacity.Claim({{shape, 2}})) << "the pod ends at some time";
  EXPECT_EQ(capacity.RoomFor(shape, 1), 0) << "a smaller gang does not overtake";
  objects.own.clear();
  const DeviceRoom foreign = objects.Room();
  Capacity held = CapacityOf(foreign);
  EXPECT_FALSE(held.Claim({{shape, 2}})) << "another owner's pod may run for ever";
}

TEST(DeviceRoom, OnlyCompletePoolsOfTheNewestGenerationCount) {
  Objects objects;
  objects.slices = {SliceOf("n0", 8), SliceOf("n1", 8)};
  objects.slices[0].slices = 2;
  EXPECT_EQ(RoomFor(objects, Claim(1)), 8) << "half of the pool n0 is missing";
  DeviceSlice second = SliceOf("n0", 2);
  second.slices = 2;
  second.devices[0].name = "gpu-8";
  second.devices[1].name = "gpu-9";
  objects.slices.push_back(second);
  EXPECT_EQ(RoomFor(objects, Claim(1)), 18);
  DeviceSlice newer = SliceOf("n0", 1);
  newer.generation = 2;
  objects.slices.push_back(newer);
  EXPECT_EQ(RoomFor(objects, Claim(1)), 9) << "the slices of the first generation are outdated";
  objects.slices.back().slices = 2;
  EXPECT_EQ(RoomFor(objects, Claim(1)), 8)
      << "nor does the old generation count until the new one is complete";
}

TEST(DeviceRoom, AllocatedDevicesAreTaken) {
  Objects objects = TwoNodes();
  objects.claims = {{"", "", {{kClass, "n0", "gpu-0"}, {kClass, "n0", "gpu-1"}}},  // shared by name
                    {"ml/other", "u", {{kClass, "n1", "gpu-0"}}},                  // another owner's pod
                    {"ml/other", "u", {{"net.example.com", "n1", "port-0"}}},      // another driver
                    {"ml/other", "u", {{kClass, "n1", "gpu-77"}}}};                // it is gone
  EXPECT_EQ(RoomFor(objects, Claim(1)), 6 + 7);
  EXPECT_EQ(RoomFor(objects, Claim(7)), 1);
}

TEST(DeviceRoom, APodTakesWhatItWasGiven) {
  Objects objects = TwoNodes();
  objects.slices[0].devices[7] = Gpu(7, "LARGE");
  objects.templates = {Claim(1), Claim(1, {kLarge})};
  objects.own = {"ml/a-0"};
  objects.claims = {{"ml/a-0", "u", {{kClass, "n0", "gpu-7"}}}};
  const DeviceRoom room = objects.Room();
  const Capacity::Shape any = ShapeOf(room, Claim(1));
  const Capacity::Shape large = ShapeOf(room, Claim(1, {kLarge}));
  const DeviceRoom::Taken* taken = room.TakenBy("ml/a-0", "u");
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->node, "n0");
  EXPECT_EQ(room.TakenBy("ml/a-0", "v"), nullptr) << "an earlier pod of that name";
  Capacity capacity = CapacityOf(room);
  EXPECT_EQ(capacity.RoomFor(large, 2), 1) << "the claim's pod is not known yet";
  const Resources requests = {{"cpu", 1'000}};
  capacity.SetPod("ml/a-0", room.RequestsOf(requests, *any, 1, nullptr), "n0");
  EXPECT_EQ(capacity.RoomFor(any, 100), 15);
  EXPECT_EQ(capacity.RoomFor(large, 2), 1) << "until its claim is allocated, it takes any";
  EXPECT_EQ(room.RequestsOf(requests, *any, 2, taken), any->requests) << "another claim is not allocated yet";
  capacity.SetRequests("ml/a-0", room.RequestsOf(requests, *any, 1, taken));
  EXPECT_EQ(capacity.RoomFor(any, 100), 15);
  EXPECT_EQ(capacity.RoomFor(large, 2), 0) << "it was given the large one";
  capacity.RemovePod("ml/a-0");
  EXPECT_EQ(capacity.RoomFor(any, 100), 16);
}

TEST(DeviceRoom, AModelIsAPartOfItsClass) {
  Objects objects = TwoNodes(4);
  for (DeviceSlice& slice : objects.slices) slice.devices[0] = Gpu(0, "LARGE");
  EXPECT_EQ(RoomFor(objects, Claim(1, {kLarge})), 2);
  objects.templates = {Claim(4), Claim(1, {kLarge})};
  const DeviceRoom room = objects.Room();
  Capacity capacity = CapacityOf(room);
  const Capacity::Shape large = ShapeOf(room, Claim(1, {kLarge}));
  const Capacity::Shape four = ShapeOf(room, Claim(4));
  ASSERT_TRUE(capacity.Reserve({"ml/a-0"}, large));
  EXPECT_EQ(capacity.RoomFor(four, 2), 1) << "the large device of one node is one of its four";
  // The sum of what a class and a model of it take is limited by both.
  ASSERT_TRUE(capacity.Reserve({"ml/a-1"}, large));
  EXPECT_EQ(
      capacity.FitOf(large, 1).missing,
      "needs 1 device of gpu.example.com with device.attributes[\"gpu.example.com\"].model == \"LARGE\" on 1 "
      "nodes; 0 nodes have room (other nodes: 2 full)");
}

TEST(DeviceRoom, WhatIsNotCountedKeepsNoGangOut) {
  const auto note = [](const Objects& objects, const ClaimTemplate& claim) {
    Objects all = objects;
    all.templates = {claim};
    const DeviceRoom room = all.Room();
    const Capacity::Shape shape = ShapeOf(room, claim);
    EXPECT_EQ(CapacityOf(room).RoomFor(shape, 100), 100) << shape->note;
    return shape->note;
  };
  Objects functions = TwoNodes(1);
  functions.classes[0].selectors = {"device.driver.startsWith('gpu')"};
  EXPECT_EQ(note(functions, Claim(8)),
            "claims of gpu.example.com are not counted: the operator does not evaluate the selector "
            "device.driver.startsWith('gpu')");
  Objects shared = TwoNodes(1);
  shared.slices[0].devices[0].several = true;
  EXPECT_EQ(
      note(shared, Claim(8)),
      "claims of gpu.example.com are not counted: several claims may have device gpu-0 of gpu.example.com");
  Objects anywhere = TwoNodes(1);
  anywhere.slices[0].node.clear();
  EXPECT_EQ(
      note(anywhere, Claim(8)),
      "claims of gpu.example.com are not counted: device gpu-0 of gpu.example.com belongs to no single node");
  EXPECT_EQ(note(TwoNodes(1), {{}, "it asks for all devices"}),
            "the claim of gpus is not counted: it asks for all devices");
  const DeviceRoom none("the operator may not read resourceslices");
  const Capacity::Shape shape = ShapeOf(none, Claim(8));
  EXPECT_EQ(CapacityOf(none).RoomFor(shape, 100), 100);
  EXPECT_EQ(shape->note, "claims of devices are not counted: the operator may not read resourceslices");
}

// Nothing of these says that there is no room in truth, but pods would only wait, too.
TEST(DeviceRoom, WhatDoesNotExistKeepsAGangOut) {
  Objects objects = TwoNodes();
  objects.classes.clear();
  EXPECT_EQ(MissingFor(objects, Claim(2), 2),
            "needs 2 devices of gpu.example.com on 2 nodes; 0 nodes have room (other nodes: 2 full); the "
            "cluster has no "
            "DeviceClass gpu.example.com");
  const DeviceRoom room = TwoNodes().Room();
  PodShape shape;
  shape.claims = {"absent"};
  const auto counted = std::make_shared<const PodShape>(room.Count(shape, {nullptr}));
  EXPECT_EQ(CapacityOf(room).FitOf(counted, 2).missing,
            "needs devices on 2 nodes; 0 nodes have room (other nodes: 2 full); the namespace has no "
            "ResourceClaimTemplate absent");
  const DeviceRoom unread;
  const Capacity::Shape waits = ShapeOf(unread, Claim(1));
  EXPECT_EQ(CapacityOf(unread).RoomFor(waits, 1), 0);
  EXPECT_TRUE(waits->unread);
  EXPECT_FALSE(counted->unread);
  EXPECT_EQ(unread.RequestsOf({{"cpu", 1'000}}, *waits, 1, nullptr), (Resources{{"cpu", 1'000}}))
      << "a pod that is bound takes no more than is known";
}

TEST(DeviceRoom, TaintedDevicesAreForClaimsThatTolerateThem) {
  Objects objects = TwoNodes(2);
  objects.slices[0].devices[0].tainted = true;
  EXPECT_EQ(RoomFor(objects, Claim(1)), 3);
  ClaimTemplate tolerates = Claim(1);
  tolerates.requests[0].tolerates = true;
  EXPECT_EQ(RoomFor(objects, tolerates), 4);
}

// Pods that ask for devices by a resource's name: that of the class, and the class's extended resource.
TEST(DeviceRoom, ResourcesThatAreDevices) {
  Objects objects = TwoNodes(4);
  objects.classes[0].extended_resource = "example.com/gpu";
  objects.templates = {Claim(3)};
  const DeviceRoom room = objects.Room();
  EXPECT_TRUE(room.Extends({{"example.com/gpu", 1}}));
  EXPECT_FALSE(room.Extends({{"nvidia.com/gpu", 1}}));
  Capacity capacity = CapacityOf(room);
  NodeFacts plugin = NodeOf("plugin");
  plugin.allocatable["example.com/gpu"] = 4;
  for (const auto& [resource, amount] : room.OfNode(plugin)) plugin.allocatable[resource] = amount;
  EXPECT_EQ(plugin.allocatable["example.com/gpu"], 4)
      << "where a device plugin offers it, no claim is created";
  capacity.SetNode(plugin);
  const auto named = [&](const char* resource, int64_t amount) {
    PodShape shape;
    shape.requests = {{resource, amount}};
    return std::make_shared<const PodShape>(room.Count(shape, {}));
  };
  const Capacity::Shape extended = named("example.com/gpu", 2);
  const Capacity::Shape by_class = named("deviceclass.resource.kubernetes.io/gpu.example.com", 2);
  const Capacity::Shape claims = ShapeOf(room, Claim(3));
  EXPECT_EQ(capacity.RoomFor(extended, 100), 6);
  EXPECT_EQ(capacity.RoomFor(by_class, 100), 4);
  EXPECT_EQ(capacity.RoomFor(claims, 100), 2);
  EXPECT_EQ(capacity.FitOf(extended, 7).missing,
            "needs 2 x example.com/gpu for each of 7 pods; there is room for 6");
  // All take the same devices.
  ASSERT_TRUE(capacity.Reserve({"ml/a-0", "ml/a-1"}, claims));
  EXPECT_EQ(capacity.RoomFor(extended, 100), 2) << "those of the device plugin";
  EXPECT_EQ(capacity.RoomFor(by_class, 100), 0);
  capacity.Unreserve("ml/a-0");
  capacity.Unreserve("ml/a-1");
  ASSERT_TRUE(capacity.Reserve({"ml/b-0", "ml/b-1", "ml/b-2", "ml/b-3", "ml/b-4", "ml/b-5"}, extended));
  EXPECT_EQ(capacity.RoomFor(claims, 100), 0);
  EXPECT_EQ(capacity.RoomFor(by_class, 100), 0);
}

TEST(DeviceRoom, PodsWhoseDevicesChanged) {
  Objects objects = TwoNodes();
  objects.own = {"ml/a-0", "ml/a-1"};
  const DeviceRoom before = objects.Room();
  objects.claims = {{"ml/a-0", "u", {{kClass, "n0", "gpu-0"}}}};
  const DeviceRoom between = objects.Room();
  objects.claims = {{"ml/a-0", "u", {{kClass, "n0", "gpu-0"}}}, {"ml/a-1", "u", {{kClass, "n1", "gpu-0"}}}};
  const DeviceRoom after = objects.Room();
  EXPECT_EQ(between.PodsWithOtherDevices(before), std::vector<std::string>{"ml/a-0"});
  EXPECT_EQ(after.PodsWithOtherDevices(between), std::vector<std::string>{"ml/a-1"});
  EXPECT_EQ(before.PodsWithOtherDevices(after), (std::vector<std::string>{"ml/a-0", "ml/a-1"}));
  EXPECT_TRUE(after.PodsWithOtherDevices(after).empty());
  // The same from the devices that are known already.
  const DeviceRoom quick(before, objects.View());
  EXPECT_TRUE(quick.PodsWithOtherDevices(after).empty());
  EXPECT_EQ(quick.OfNode(NodeOf("n0")), after.OfNode(NodeOf("n0")));
  objects.own.clear();
  const DeviceRoom foreign(quick, objects.View());
  EXPECT_EQ(foreign.OfNode(NodeOf("n0")), objects.Room().OfNode(NodeOf("n0")));
  EXPECT_NE(foreign.OfNode(NodeOf("n0")), after.OfNode(NodeOf("n0")));
}

}  // namespace
}  // namespace ringmaster::core
