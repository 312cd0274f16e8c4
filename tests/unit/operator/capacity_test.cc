// SPDX-License-Identifier: Apache-2.0

// Capacity: requests, filters, topology, and places reserved for expected pods.
#include "operator/core/capacity/capacity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/rng.h"
#include "operator/core/capacity/gang_room.h"

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

// Racks r0, r1, ... with so many nodes each; a pod takes a node.
Capacity Racks(const std::vector<int>& nodes) {
  Capacity capacity;
  for (size_t rack = 0; rack < nodes.size(); ++rack)
    for (int i = 0; i < nodes[rack]; ++i)
      capacity.SetNode(GpuNode(fmt::format("n{}-{}", rack, i), 8, fmt::format("r{}", rack)));
  return capacity;
}

Capacity::Shape InRacks(const std::string& required, const std::string& preferred = "", int64_t gpus = 8) {
  PodShape shape = GpuPod(gpus);
  shape.topology_key = required;
  shape.preferred_key = preferred;
  return Shared(shape);
}

std::vector<std::string> Gang(const std::string& name, int pods) {
  std::vector<std::string> gang;
  for (int i = 0; i < pods; ++i) gang.push_back(fmt::format("{}{}", name, i));
  return gang;
}

// Returns the racks of the pods in their order.
std::vector<std::string> RacksOf(const Capacity& capacity, const std::vector<std::string>& pods) {
  std::vector<std::string> racks;
  for (const std::string& pod : pods) racks.push_back(capacity.DomainOf(pod, "rack").value_or("?"));
  return racks;
}

using Names = std::vector<std::string>;

TEST(Capacity, AGangGetsTheSmallestDomainThatHasRoomForAll) {
  Capacity capacity = Racks({6, 2, 3});
  const Names gang = Gang("a", 2);
  ASSERT_TRUE(capacity.Reserve(gang, InRacks("rack")));
  EXPECT_EQ(RacksOf(capacity, gang), Names({"r1", "r1"}));
  const Names next = Gang("b", 2);
  ASSERT_TRUE(capacity.Reserve(next, InRacks("rack")));
  EXPECT_EQ(RacksOf(capacity, next), Names({"r2", "r2"}));
  EXPECT_EQ(capacity.FitOf(InRacks("rack"), 6).room, 6) << "the large one is whole";
  EXPECT_EQ(capacity.BestFit(InRacks("rack"), 1), "r2");
  EXPECT_EQ(capacity.BestFit(InRacks("rack"), 7), std::nullopt);
  EXPECT_EQ(capacity.RoomsOf(InRacks("rack")), (std::vector<int64_t>{1, 6}));
}

TEST(Capacity, NamesTheDomainWithTheMostRoom) {
  Capacity capacity = Racks({2, 4});
  EXPECT_EQ(capacity.FitOf(InRacks("rack"), 5).missing,
            "needs 8 x nvidia.com/gpu on 5 nodes within one rack; the most room has r1: for 4");
  ASSERT_TRUE(capacity.Reserve({"a"}, InRacks("rack")));
  EXPECT_EQ(
      capacity.FitOf(InRacks("rack"), 3, {"a"}).missing,
      "needs 8 x nvidia.com/gpu on 3 nodes within one rack; that of the gang, r0, has room for 1 (other "
      "nodes: 1 full)");
}

// The workers alone fit into the small rack, the gang does not.
TEST(Capacity, ADomainHasRoomForPodsOfAllShapes) {
  for (const bool required : {true, false}) {
    Capacity capacity = Racks({4, 2});
    const auto shape = [&](int64_t gpus) {
      return required ? InRacks("rack", "", gpus) : InRacks("", "rack", gpus);
    };
    const Names workers = Gang("w", 2), servers = Gang("ps", 2);
    ASSERT_TRUE(capacity.Reserve({{workers, shape(8)}, {servers, shape(4)}}));
    EXPECT_EQ(RacksOf(capacity, workers), Names({"r0", "r0"}));
    EXPECT_EQ(RacksOf(capacity, servers), Names({"r0", "r0"}));
  }
}

TEST(Capacity, NothingIsReservedWhenOneShapeHasNoRoom) {
  Capacity capacity = Racks({2, 2});
  EXPECT_FALSE(capacity.Reserve({{Gang("w", 2), InRacks("rack")}, {Gang("ps", 1), InRacks("rack", "", 1)}}));
  EXPECT_EQ(capacity.RoomsOf(InRacks("rack")), (std::vector<int64_t>{2, 2}));
}

TEST(Capacity, APreferredTopologyUsesFewDomains) {
  Capacity capacity = Racks({2, 4, 3});
  const Names one = Gang("a", 3);
  ASSERT_TRUE(capacity.Reserve(one, InRacks("", "rack")));
  EXPECT_EQ(RacksOf(capacity, one), Names({"r2", "r2", "r2"})) << "one domain, the smallest";
  const Names two = Gang("b", 6);
  ASSERT_TRUE(capacity.Reserve(two, InRacks("", "rack")));
  EXPECT_EQ(RacksOf(capacity, two), Names({"r1", "r1", "r1", "r1", "r0", "r0"})) << "domain by domain";
}

TEST(Capacity, APreferredTopologyNeverWaits) {
  Capacity capacity = Racks({1, 1});
  NodeFacts bare = GpuNode("bare", 8);
  bare.labels.clear();
  capacity.SetNode(bare);
  const Names gang = Gang("a", 3);
  EXPECT_EQ(capacity.FitOf(InRacks("", "rack"), 3), (Fit{3, ""}));
  ASSERT_TRUE(capacity.Reserve(gang, InRacks("", "rack")));
  EXPECT_EQ(RacksOf(capacity, gang), Names({"r0", "r1", "?"})) << "nodes without the label come last";
}

TEST(Capacity, JoiningPodsGoToTheDomainsOfTheGang) {
  for (const bool required : {true, false}) {
    Capacity capacity = Racks({4, 1, 2});
    const Capacity::Shape shape = required ? InRacks("rack") : InRacks("", "rack");
    capacity.SetPod("a0", GpuPod(8).requests, "n0-0");
    ASSERT_TRUE(capacity.Reserve({"a1"}, shape, {"a0"}));
    EXPECT_EQ(RacksOf(capacity, {"a1"}), Names({"r0"}));
    EXPECT_EQ(capacity.Reserve(Gang("more", 3), shape, {"a0", "a1"}), !required);
    if (required) continue;
    EXPECT_EQ(RacksOf(capacity, Gang("more", 3)), Names({"r0", "r0", "r1"}));
  }
}

TEST(Capacity, ARequiredDomainIsDividedByThePreferredOne) {
  Capacity capacity;
  for (int i = 0; i < 8; ++i) {
    NodeFacts node = GpuNode(fmt::format("n{}", i), 8, fmt::format("r{}", i % 4));
    node.labels["zone"] = i % 2 == 0 ? "even" : "odd";
    capacity.SetNode(node);
  }
  capacity.SetPod("x", GpuPod(8).requests, "n1");
  const Names gang = Gang("a", 3);
  ASSERT_TRUE(capacity.Reserve(gang, InRacks("zone", "rack")));
  EXPECT_EQ(capacity.DomainOf("a0", "zone"), "odd");
  EXPECT_EQ(RacksOf(capacity, gang), Names({"r3", "r3", "r1"}));
}

// Its node is lost after the reservation: the place may not move to another domain than that of the gang.
TEST(Capacity, AReservedPlaceDoesNotMoveToAnotherDomain) {
  Capacity capacity = Racks({2, 3});
  ASSERT_TRUE(capacity.Reserve({"a", "b"}, InRacks("rack")));
  capacity.RemoveNode("n0-0");
  EXPECT_EQ(capacity.ReservedFor("a"), nullptr);
  EXPECT_NE(capacity.ReservedFor("b"), nullptr);
  EXPECT_EQ(capacity.FitOf(InRacks("rack"), 1, {"a", "b"}).room, 0);
  capacity.SetNode(GpuNode("n0-0", 8, "r0"));
  ASSERT_TRUE(capacity.Reserve({"a", "b"}, InRacks("rack")));
  EXPECT_EQ(RacksOf(capacity, {"a", "b"}), Names({"r0", "r0"}));
}

TEST(Capacity, AReservedPlaceStaysOnANodeThatChanges) {
  Capacity capacity = Racks({2, 3});
  ASSERT_TRUE(capacity.Reserve({"a", "b"}, InRacks("rack")));
  NodeFacts node = GpuNode("n0-0", 8, "r0");
  node.labels["started"] = "again";
  capacity.SetNode(node);
  EXPECT_NE(capacity.ReservedFor("a"), nullptr);
  EXPECT_EQ(RacksOf(capacity, {"a", "b"}), Names({"r0", "r0"}));
}

// No other choice of domains uses fewer of them.
TEST(Capacity, APreferredTopologyUsesTheFewestDomains) {
  SplitMix64 rng(3);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<int> racks(1 + rng.Below(5));
    int all = 0;
    for (int& nodes : racks) all += nodes = static_cast<int>(rng.Below(5));
    if (all == 0) continue;
    Capacity capacity = Racks(racks);
    const int pods = 1 + static_cast<int>(rng.Below(static_cast<uint64_t>(all)));
    const Names gang = Gang("a", pods);
    ASSERT_TRUE(capacity.Reserve(gang, InRacks("", "rack")));
    const Names places = RacksOf(capacity, gang);
    std::sort(racks.rbegin(), racks.rend());
    size_t fewest = 0;
    for (int room = 0; room < pods; ++fewest) room += racks[fewest];
    ASSERT_EQ(std::set<std::string>(places.begin(), places.end()).size(), fewest);
    size_t edges = 0;  // of the ring that leave a domain
    for (size_t i = 0; i < places.size(); ++i) edges += places[i] != places[(i + 1) % places.size()] ? 1 : 0;
    ASSERT_EQ(edges, fewest > 1 ? fewest : 0);
  }
}

TEST(Capacity, KnowsWhichLabelsNodesHave) {
  Capacity capacity = Racks({1, 1});
  EXPECT_TRUE(capacity.labels().contains("rack"));
  const uint64_t version = capacity.label_version();
  capacity.SetNode(GpuNode("n1-0", 8, "r7"));
  EXPECT_EQ(capacity.label_version(), version) << "the same labels";
  capacity.RemoveNode("n0-0");
  EXPECT_TRUE(capacity.labels().contains("rack"));
  capacity.RemoveNode("n1-0");
  EXPECT_FALSE(capacity.labels().contains("rack"));
  EXPECT_NE(capacity.label_version(), version);
  EXPECT_FALSE(capacity.has_nodes());
}

// Pods that exist may use only the domain that they were created for.
TEST(Capacity, FindsPodsThatWaitForADomainWithoutRoom) {
  const auto in_r0 = [](const Capacity::Shape& free) {
    PodShape shape = *free;
    shape.node_selector["rack"] = "r0";
    return Shared(shape);
  };
  for (const bool required : {true, false}) {
    const Capacity::Shape free = required ? InRacks("rack") : InRacks("", "rack");
    const std::string key = required ? "rack" : "";
    Capacity capacity = Racks({2, 3});
    const Capacity::Shape bound = in_r0(free);
    const std::vector<BoundToDomain> gated = {{0, "a0", bound, free, true, false},
                                              {1, "a1", bound, free, true, false}};
    EXPECT_EQ(StrandedPods(capacity, gated, {"a0", "a1"}, key), std::vector<int32_t>());
    capacity.SetPod("x", GpuPod(8).requests, "n0-0");
    EXPECT_EQ(StrandedPods(capacity, gated, {"a0", "a1"}, key),
              required ? std::vector<int32_t>({0, 1}) : std::vector<int32_t>({1}));
    // A third one runs in r0.
    capacity.SetPod("a2", GpuPod(8).requests, "n0-1");
    EXPECT_EQ(StrandedPods(capacity, gated, {"a0", "a1", "a2"}, key),
              required ? std::vector<int32_t>() : std::vector<int32_t>({0, 1}));
  }
  Capacity capacity = Racks({1, 1});
  const Capacity::Shape free = InRacks("", "rack");
  const BoundToDomain released = {0, "a0", in_r0(free), free, false, true};
  capacity.ExpectPod("a0", released.shape);
  EXPECT_TRUE(StrandedPods(capacity, {released}, {"a0"}, "").empty());
  capacity.SetPod("x", GpuPod(8).requests, "n0-0");
  EXPECT_EQ(StrandedPods(capacity, {released}, {"a0"}, ""), std::vector<int32_t>({0}));
  capacity.SetPod("y", GpuPod(8).requests, "n1-0");
  EXPECT_TRUE(StrandedPods(capacity, {released}, {"a0"}, "").empty()) << "nor is there room elsewhere";
}

// Such a pod may still get a node, so the pods that replace its peers must not go to another domain.
TEST(Capacity, APodWithoutAPlaceKeepsItsGangInItsDomain) {
  Capacity capacity = Racks({1, 2});
  const Capacity::Shape free = InRacks("rack", "");
  PodShape there = *free;
  there.node_selector["rack"] = "r0";
  const Capacity::Shape in_r0 = Shared(there);
  capacity.ExpectPod("a0", in_r0);
  capacity.SetPod("x", GpuPod(8).requests, "n0-0");
  EXPECT_FALSE(capacity.Reserve({"a1"}, free, {"a0"}));
  // Unless it is created again, since there is room elsewhere.
  EXPECT_EQ(StrandedPods(capacity, {{0, "a0", in_r0, free, false, true}}, {"a0"}, "rack"),
            std::vector<int32_t>({0}));
  EXPECT_TRUE(capacity.Reserve({"a1"}, free, {}));
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

TEST(Capacity, TheAddressesOfShapesDecideNothing) {
  for (const bool swapped : {false, true}) {
    const auto block = std::make_shared<std::array<PodShape, 2>>();
    (*block)[swapped ? 1 : 0] = GpuPod(4);
    (*block)[swapped ? 0 : 1] = GpuPod(8);
    const Capacity::Shape half(block, &(*block)[swapped ? 1 : 0]), whole(block, &(*block)[swapped ? 0 : 1]);
    Capacity capacity = Cluster(1);
    capacity.SetPod("other", {{kGpu, 8}}, "n0");
    capacity.ExpectPod("half", half);
    capacity.ExpectPod("whole", whole);
    capacity.RemovePod("other");
    EXPECT_EQ(capacity.IsUnplaced("half"), false) << swapped;
    EXPECT_EQ(capacity.IsUnplaced("whole"), true) << swapped;
  }
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
