// SPDX-License-Identifier: Apache-2.0

// Capacity: requests, filters, topology, and places reserved for expected pods.
#include "operator/core/capacity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 4), (Fit{4, ""}));
  capacity.SetPod("a", {{kGpu, 1}}, "n0");
  capacity.SetPod("b", {{kGpu, 8}}, "n1");
  const Fit fit = capacity.FitOf(GpuPod(8), 4);
  EXPECT_EQ(fit.room, 2);
  EXPECT_EQ(fit.missing, "needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room (other nodes: 2 full)");
}

TEST(Capacity, SeveralPodsOfAGangShareANode) {
  Capacity capacity = Cluster(2);
  EXPECT_EQ(capacity.FitOf(GpuPod(2), 8).room, 8);
  const Fit fit = capacity.FitOf(GpuPod(2), 9);
  EXPECT_EQ(fit.room, 8);
  EXPECT_EQ(fit.missing, "needs 2 x nvidia.com/gpu for each of 9 pods; there is room for 8");
}

TEST(Capacity, EveryResourceAndThePodSlotsCount) {
  Capacity capacity;
  NodeFacts node = GpuNode("n", 8);
  node.allocatable["pods"] = 3;
  capacity.SetNode(node);
  EXPECT_EQ(capacity.FitOf(GpuPod(1), 8).room, 3);
  node.allocatable["pods"] = 110;
  node.allocatable["memory"] = 130 * kGiB;
  capacity.SetNode(node);
  EXPECT_EQ(capacity.FitOf(GpuPod(1), 8).room, 2);
}

TEST(Capacity, AResourceWithoutANodeHasNoRoom) {
  Capacity capacity = Cluster(2);
  PodShape shape = GpuPod(1);
  shape.requests["rdma/ib"] = 1;
  const Fit fit = capacity.FitOf(shape, 2);
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
  EXPECT_EQ(capacity.FitOf(shape, 4).room, 4);
  const Fit fit = capacity.FitOf(shape, 5);
  EXPECT_EQ(fit.room, 4);
  EXPECT_NE(fit.missing.find("within one rack"), std::string::npos) << fit.missing;
  // A peer is in the small rack already.
  EXPECT_EQ(capacity.FitOf(shape, 4, {"n0"}).room, 2);
}

TEST(Capacity, NodesThatAreNotReadyHaveNoRoom) {
  Capacity capacity = Cluster(2);
  NodeFacts lost = GpuNode("n0", 8);
  lost.ready = false;
  capacity.SetNode(lost);
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 1);
  capacity.RemoveNode("n1");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 0);
  capacity.SetNode(GpuNode("n0", 8));
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 1);
}

TEST(Capacity, TwoGangsNeverReserveTheSameRoom) {
  Capacity capacity = Cluster(4);
  EXPECT_TRUE(capacity.Reserve({"a0", "a1", "a2"}, Shared(GpuPod(8))));
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 1);
  EXPECT_FALSE(capacity.Reserve({"b0", "b1"}, Shared(GpuPod(8))));
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 1);  // nothing was reserved
  capacity.SetGated("a0");                          // from a stale view
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 1);
  capacity.Unreserve("a0");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 2).room, 2);
}

TEST(Capacity, ABoundPodMovesThePodsExpectedOnItsNode) {
  Capacity capacity = Cluster(2);
  ASSERT_TRUE(capacity.Reserve({"a"}, Shared(GpuPod(8))));  // expected on n0
  ASSERT_TRUE(capacity.Reserve({"b"}, Shared(GpuPod(8))));  // expected on n1
  capacity.SetPod("a", GpuPod(8).requests, "n1");
  // b is expected on n0 now: nothing is left.
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 1).room, 0);
  capacity.SetPod("b", GpuPod(8).requests, "n0");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 1).room, 0);
  capacity.RemovePod("a");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 1).room, 1);
}

TEST(Capacity, AnUnplacedPodTakesTheNextFreePlace) {
  Capacity capacity = Cluster(1);
  capacity.SetPod("x", GpuPod(8).requests, "n0");
  capacity.ExpectPod("a", Shared(GpuPod(8)));
  capacity.RemovePod("x");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 1).room, 0);
  capacity.RemovePod("a");
  EXPECT_EQ(capacity.FitOf(GpuPod(8), 1).room, 1);
}

TEST(Capacity, RepeatedObservationsChangeNothing) {
  Capacity capacity = Cluster(1);
  for (int i = 0; i < 3; ++i) capacity.SetPod("x", {{kGpu, 4}}, "n0");
  for (int i = 0; i < 3; ++i) capacity.SetNode(GpuNode("n0", 8));
  for (int i = 0; i < 3; ++i) capacity.ExpectPod("a", Shared(GpuPod(2)));
  EXPECT_EQ(capacity.FitOf(GpuPod(1), 8).room, 2);
  for (int i = 0; i < 3; ++i) capacity.RemovePod("x");
  EXPECT_EQ(capacity.FitOf(GpuPod(1), 8).room, 6);
}

}  // namespace
}  // namespace ringmaster::core
