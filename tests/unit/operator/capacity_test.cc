// SPDX-License-Identifier: Apache-2.0

// Capacity: requests, filters, topology, and places reserved for expected pods.
#include "operator/core/capacity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace ringmaster::core {
namespace {

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr int64_t kGiB = int64_t{1} << 30;

NodeFacts GpuNode(const std::string& name, int64_t gpus, const std::string& rack = "r1") {
  NodeFacts node;
  node.name = name;
  node.allocatable = {{"cpu", 64'000}, {"memory", 512 * kGiB}, {kGpu, gpus}, {"pods", 110}};
  node.labels = {{"kubernetes.io/hostname", name}, {"rack", rack}};
  return node;
}

PodShape GpuPod(int64_t gpus) {
  PodShape shape;
  shape.requests = {{"cpu", 8'000}, {"memory", 64 * kGiB}, {kGpu, gpus}};
  return shape;
}

Capacity Cluster(int nodes, int64_t gpus = 8) {
  Capacity capacity;
  for (int i = 0; i < nodes; ++i) capacity.SetNode(GpuNode(fmt::format("n{}", i), gpus));
  return capacity;
}

Capacity::Shape Shared(PodShape shape) { return std::make_shared<const PodShape>(std::move(shape)); }

TEST(Capacity, ReportsWhatIsMissingInUnitsOfTheRequest) {
  Capacity capacity = Cluster(4);
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 4), (Fit{4, ""}));
  capacity.SetPod("a", {{kGpu, 1}}, "n0");
  capacity.SetPod("b", {{kGpu, 8}}, "n1");
  const Fit fit = capacity.FitOf(Shared(GpuPod(8)), 4);
  EXPECT_EQ(fit.room, 2);
  EXPECT_EQ(fit.missing, "needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room (other nodes: 2 full)");
}

TEST(Capacity, SeveralPodsOfAGangShareANode) {
  Capacity capacity = Cluster(2);
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(2)), 8).room, 8);
  const Fit fit = capacity.FitOf(Shared(GpuPod(2)), 9);
  EXPECT_EQ(fit.room, 8);
  EXPECT_EQ(fit.missing, "needs 2 x nvidia.com/gpu for each of 9 pods; there is room for 8");
}

TEST(Capacity, EveryResourceAndThePodSlotsCount) {
  Capacity capacity;
  NodeFacts node = GpuNode("n", 8);
  node.allocatable["pods"] = 3;
  capacity.SetNode(node);
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 3);
  node.allocatable["pods"] = 110;
  node.allocatable["memory"] = 130 * kGiB;
  capacity.SetNode(node);
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 2);
}

TEST(Capacity, AResourceWithoutANodeHasNoRoom) {
  Capacity capacity = Cluster(2);
  PodShape shape = GpuPod(1);
  shape.requests["rdma/ib"] = 1;
  const Fit fit = capacity.FitOf(Shared(shape), 2);
  EXPECT_EQ(fit.room, 0);
  EXPECT_NE(fit.missing.find("1 x rdma/ib"), std::string::npos) << fit.missing;
}

TEST(Capacity, AppliesTheSchedulersFilters) {
  NodeFacts node = GpuNode("n", 8);
  PodShape shape = GpuPod(1);
  EXPECT_TRUE(Matches(shape, node));
  node.taints = {{kGpu, "present", "NoSchedule"}};
  EXPECT_FALSE(Matches(shape, node));
  shape.tolerations = {{kGpu, false, "absent", ""}};
  EXPECT_FALSE(Matches(shape, node));
  shape.tolerations = {{kGpu, true, "", "NoSchedule"}};
  EXPECT_TRUE(Matches(shape, node));
  node.taints.push_back({"soft", "", "PreferNoSchedule"});
  EXPECT_TRUE(Matches(shape, node));
  node.unschedulable = true;
  EXPECT_FALSE(Matches(shape, node));
  shape.tolerations = {{"", true, "", ""}};  // tolerates everything
  EXPECT_TRUE(Matches(shape, node));
  shape.node_selector = {{"rack", "r2"}};
  EXPECT_FALSE(Matches(shape, node));
}

TEST(Capacity, AffinityNeedsOneTermWithAllItsRequirements) {
  using Op = Requirement::Op;
  const NodeFacts node = GpuNode("n", 8);
  const auto matches = [&](std::vector<std::vector<Requirement>> terms) {
    PodShape shape;
    shape.affinity = std::move(terms);
    return Matches(shape, node);
  };
  EXPECT_TRUE(matches({{{"rack", Op::kIn, {"r0", "r1"}}}}));
  EXPECT_FALSE(matches({{{"rack", Op::kIn, {"r1"}}, {"rack", Op::kNotIn, {"r1"}}}}));
  EXPECT_TRUE(matches({{{"rack", Op::kIn, {"r9"}}}, {{"kubernetes.io/hostname", Op::kIn, {"n"}}}}));
  EXPECT_FALSE(matches({{{"metadata.name", Op::kNotIn, {"n"}}}}));
  EXPECT_TRUE(matches({{{"zone", Op::kNotIn, {"z"}}}}));
  EXPECT_FALSE(matches({{{"zone", Op::kExists, {}}}}));
  EXPECT_TRUE(matches({{{"zone", Op::kDoesNotExist, {}}}}));
  EXPECT_FALSE(matches({{{"rack", Op::kGt, {"1"}}}}));  // not a number
  EXPECT_FALSE(matches({{}}));                          // an empty term matches nothing
}

TEST(Capacity, ATopologyKeyKeepsTheGangTogether) {
  Capacity capacity;
  for (int i = 0; i < 6; ++i) capacity.SetNode(GpuNode(fmt::format("n{}", i), 8, i < 2 ? "small" : "large"));
  PodShape shape = GpuPod(8);
  shape.topology_key = "rack";
  EXPECT_EQ(capacity.FitOf(Shared(shape), 4).room, 4);
  const Fit fit = capacity.FitOf(Shared(shape), 5);
  EXPECT_EQ(fit.room, 4);
  EXPECT_NE(fit.missing.find("within one rack"), std::string::npos) << fit.missing;
  // A peer is in the small rack already.
  capacity.SetPod("peer", {}, "n0");
  EXPECT_EQ(capacity.FitOf(Shared(shape), 4, {"peer"}).room, 2);
  EXPECT_FALSE(capacity.Reserve({"a", "b", "c"}, Shared(shape), {"peer"}));
  ASSERT_TRUE(capacity.Reserve({"a", "b"}, Shared(shape), {"peer"}));
  EXPECT_EQ(capacity.FitOf(Shared(shape), 4, {"peer"}).room, 0);
  EXPECT_EQ(capacity.FitOf(Shared(shape), 4).room, 4);
}

TEST(Capacity, NodesThatAreNotReadyHaveNoRoom) {
  Capacity capacity = Cluster(2);
  NodeFacts lost = GpuNode("n0", 8);
  lost.ready = false;
  capacity.SetNode(lost);
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 1);
  capacity.RemoveNode("n1");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 0);
  capacity.SetNode(GpuNode("n0", 8));
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 1);
}

TEST(Capacity, TwoGangsNeverReserveTheSameRoom) {
  Capacity capacity = Cluster(4);
  EXPECT_TRUE(capacity.Reserve({"a0", "a1", "a2"}, Shared(GpuPod(8))));
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 1);
  EXPECT_FALSE(capacity.Reserve({"b0", "b1"}, Shared(GpuPod(8))));
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 1);  // nothing was reserved
  capacity.SetGated("a0", Shared(GpuPod(8)));               // created under its reservation
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 1);
  capacity.Unreserve("a0");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 2).room, 2);
}

TEST(Capacity, ABoundPodMovesThePodsExpectedOnItsNode) {
  Capacity capacity = Cluster(2);
  ASSERT_TRUE(capacity.Reserve({"a"}, Shared(GpuPod(8))));  // expected on n0
  ASSERT_TRUE(capacity.Reserve({"b"}, Shared(GpuPod(8))));  // expected on n1
  capacity.SetPod("a", GpuPod(8).requests, "n1");
  // b is expected on n0 now: nothing is left.
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 0);
  capacity.SetPod("b", GpuPod(8).requests, "n0");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 0);
  capacity.RemovePod("a");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 1);
}

TEST(Capacity, AnUnplacedPodTakesTheNextFreePlace) {
  Capacity capacity = Cluster(1);
  capacity.SetPod("x", GpuPod(8).requests, "n0");
  capacity.ExpectPod("a", Shared(GpuPod(8)));
  capacity.RemovePod("x");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 0);
  capacity.RemovePod("a");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 1);
}

// The places of a gang are reserved by name before its pods exist, and stay reserved until the pods are
// bound.
TEST(Capacity, APodKeepsItsReservedPlaceUntilItIsBound) {
  Capacity capacity = Cluster(2);
  const Capacity::Shape shape = Shared(GpuPod(8));
  ASSERT_TRUE(capacity.Reserve({"a"}, shape));
  EXPECT_EQ(capacity.ReservedFor("a"), shape);
  capacity.SetGated("a", Shared(GpuPod(8)));
  EXPECT_NE(capacity.ReservedFor("a"), nullptr);
  ASSERT_TRUE(capacity.Reserve({"a"}, shape)) << "it has a place already";
  EXPECT_EQ(capacity.FitOf(shape, 2).room, 1) << "one place, however often it is reserved";
  capacity.ExpectPod("a", shape);  // released
  EXPECT_EQ(capacity.ReservedFor("a"), nullptr);
  capacity.Unreserve("a");
  EXPECT_EQ(capacity.FitOf(shape, 2).room, 1) << "the scheduler may bind it";
  capacity.SetPod("a", GpuPod(8).requests, "n1");
  EXPECT_EQ(capacity.FitOf(shape, 2).room, 1);
}

TEST(Capacity, AGatedPodWithoutAReservationTakesNoPlace) {
  Capacity capacity = Cluster(1);
  capacity.SetGated("a", Shared(GpuPod(8)));
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(8)), 1).room, 1);
}

TEST(Capacity, AReservedPlaceIsLostWithItsNode) {
  Capacity capacity = Cluster(2);
  const Capacity::Shape shape = Shared(GpuPod(8));
  ASSERT_TRUE(capacity.Reserve({"a", "b"}, shape));
  capacity.RemoveNode("n1");
  EXPECT_NE(capacity.ReservedFor("a") == nullptr, capacity.ReservedFor("b") == nullptr);
  EXPECT_FALSE(capacity.Reserve({"a", "b"}, shape));
  for (const char* pod : {"a", "b"}) capacity.Unreserve(pod);
  EXPECT_EQ(capacity.FitOf(shape, 2).room, 1);
}

TEST(Capacity, AReservedPlaceFollowsWhatThePodReallyRequests) {
  Capacity capacity = Cluster(1);
  ASSERT_TRUE(capacity.Reserve({"a"}, Shared(GpuPod(4))));
  capacity.SetGated("a", Shared(GpuPod(6)));  // admission has changed it
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 2);
  capacity.SetGated("a", Shared(GpuPod(9)));
  EXPECT_EQ(capacity.ReservedFor("a"), nullptr) << "no node has that many";
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 8);
}

// The answers of an index that follows changes equal those of one that is computed from scratch.
TEST(Capacity, AnswersFollowEveryChange) {
  SplitMix64 rng(7);
  Capacity capacity;
  PodShape racked = GpuPod(2);
  racked.topology_key = "rack";
  PodShape picky = GpuPod(1);
  picky.node_selector = {{"rack", "r1"}};
  const std::vector<Capacity::Shape> shapes = {Shared(GpuPod(1)), Shared(GpuPod(3)), Shared(racked),
                                               Shared(picky)};
  for (int step = 0; step < 20'000; ++step) {
    const std::string node = fmt::format("n{}", rng.Below(9));
    const std::string pod = fmt::format("p{}", rng.Below(40));
    const Capacity::Shape& shape = shapes[rng.Below(shapes.size())];
    switch (rng.Below(9)) {
      case 0: {
        NodeFacts facts = GpuNode(node, static_cast<int64_t>(rng.Below(9)), fmt::format("r{}", rng.Below(3)));
        facts.ready = rng.Chance(0.8);
        if (rng.Chance(0.1)) facts.labels.clear();
        capacity.SetNode(std::move(facts));
        break;
      }
      case 1:
        capacity.RemoveNode(node);
        break;
      case 2:
      case 3:
        capacity.SetPod(pod, shape->requests, node);
        break;
      case 4:
        capacity.ExpectPod(pod, shape);
        break;
      case 5:
        capacity.SetGated(pod, shape);
        break;
      case 6:
        capacity.RemovePod(pod);
        break;
      case 7:
        capacity.Unreserve(pod);
        break;
      default:
        capacity.Reserve({pod, fmt::format("p{}", rng.Below(40))}, shape);
    }
    if (!rng.Chance(0.2)) continue;
    const Capacity::Shape& asked = shapes[rng.Below(shapes.size())];
    const auto count = static_cast<int32_t>(1 + rng.Below(20));
    // An equal shape at another address has a separate index.
    ASSERT_EQ(capacity.FitOf(asked, count), capacity.FitOf(Shared(*asked), count)) << "step " << step;
  }
}

TEST(Capacity, RepeatedObservationsChangeNothing) {
  Capacity capacity = Cluster(1);
  for (int i = 0; i < 3; ++i) capacity.SetPod("x", {{kGpu, 4}}, "n0");
  for (int i = 0; i < 3; ++i) capacity.SetNode(GpuNode("n0", 8));
  for (int i = 0; i < 3; ++i) capacity.ExpectPod("a", Shared(GpuPod(2)));
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 2);
  for (int i = 0; i < 3; ++i) capacity.RemovePod("x");
  EXPECT_EQ(capacity.FitOf(Shared(GpuPod(1)), 8).room, 6);
}

}  // namespace
}  // namespace ringmaster::core
