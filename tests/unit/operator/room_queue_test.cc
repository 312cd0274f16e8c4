// SPDX-License-Identifier: Apache-2.0

#include "operator/core/room_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/core/capacity.h"

namespace ringmaster::core {
namespace {

using Names = std::vector<std::string>;

const char* const kGpus = "nvidia.com/gpu";

Capacity::Shape GpuShape(int64_t gpus, const std::string& topology_key = "") {
  PodShape shape;
  shape.requests[kGpus] = gpus;
  shape.topology_key = topology_key;
  return std::make_shared<const PodShape>(std::move(shape));
}

NodeFacts NodeWith(const std::string& name, int64_t gpus, const std::string& rack = "r") {
  NodeFacts node;
  node.name = name;
  node.allocatable = {{kGpus, gpus}, {"pods", 100}};
  node.labels["rack"] = rack;
  return node;
}

Capacity NodesOf8(int nodes) {
  Capacity capacity;
  for (int i = 0; i < nodes; ++i) capacity.SetNode(NodeWith(fmt::format("n{}", i), 8));
  return capacity;
}

RoomQueue::Standing Of(int32_t priority, int64_t created) { return {false, false, priority, created}; }

Names Ready(RoomQueue& queue, Capacity& capacity) {
  Names all;
  for (RoomQueue::Sweep sweep; !sweep.done();)
    for (std::string& job : queue.Ready(capacity, sweep)) all.push_back(std::move(job));
  return all;
}

TEST(RoomQueue, OrderIsStuckThenPriorityThenAge) {
  Capacity capacity = NodesOf8(4);
  RoomQueue queue;
  const Capacity::Shape shape = GpuShape(8);
  queue.Set("young", {shape, 1, {}, Of(0, 30)}, capacity);
  queue.Set("old", {shape, 1, {}, Of(0, 10)}, capacity);
  queue.Set("high", {shape, 1, {}, Of(5, 20)}, capacity);
  queue.Set("stuck", {shape, 1, {}, {true, false, -5, 40}}, capacity);
  EXPECT_EQ(queue.head(), "stuck");
  EXPECT_EQ(Ready(queue, capacity), (Names{"stuck", "high", "old", "young"}));
  queue.Remove("stuck", capacity);
  EXPECT_EQ(queue.head(), "high");
  queue.Set("high", {shape, 1, {}, Of(-1, 20)}, capacity);
  EXPECT_EQ(queue.head(), "old");
  EXPECT_EQ(queue.size(), 3u);
}

TEST(RoomQueue, ASweepOverManyShapesVisitsEachJobOnce) {
  Capacity capacity = NodesOf8(8);
  RoomQueue queue;
  Names jobs;
  for (int i = 0; i < 50; ++i) {
    jobs.push_back(fmt::format("job-{:02}", i));
    auto shape = std::make_shared<PodShape>(*GpuShape(1));
    shape->requests["pods-of-kind"] = 0;
    shape->node_selector =
        i % 3 == 0 ? std::map<std::string, std::string>{{"rack", "r"}} : std::map<std::string, std::string>{};
    queue.Set(jobs.back(), {shape, 1, {}, Of(0, i)}, capacity);
  }
  EXPECT_EQ(Ready(queue, capacity), jobs);
}

// The scheduler knows no claim, so a pod that it may see keeps its right to room.
TEST(RoomQueue, PodsThatWereLetThroughFindRoomBesideTheClaim) {
  Capacity capacity = NodesOf8(2);
  const Capacity::Shape whole = GpuShape(8);
  ASSERT_TRUE(capacity.Reserve({"let-through"}, whole));
  capacity.ExpectPod("let-through", whole);
  RoomQueue queue;
  queue.Set("head", {whole, 2, {}, Of(0, 1)}, capacity);
  ASSERT_EQ(queue.head(), "head");
  // Another owner's pod takes the node where it was expected. The other node is left, and claimed.
  capacity.SetPod("foreign", {{kGpus, 8}}, "n0");
  queue.Set("head", {whole, 1, {}, Of(0, 1)}, capacity);
  {
    const Capacity::WithoutClaim lifted(capacity);
    EXPECT_EQ(capacity.RoomFor(whole, 10), 0) << "its room would be given out twice";
  }
  // So does one that found no room at first.
  capacity.ExpectPod("late", whole);
  capacity.RemovePod("foreign");
  const Capacity::WithoutClaim lifted(capacity);
  EXPECT_EQ(capacity.RoomFor(whole, 10), 0);
}

TEST(RoomQueue, SmallerGangsDoNotTakeWhatTheHeadWaitsFor) {
  Capacity capacity = NodesOf8(4);
  const Capacity::Shape whole = GpuShape(8);
  const Capacity::Shape half = GpuShape(4);
  for (int i = 0; i < 3; ++i) capacity.SetPod(fmt::format("runs-{}", i), {{kGpus, 8}}, fmt::format("n{}", i));
  RoomQueue queue;
  queue.Set("head", {whole, 2, {}, Of(0, 1)}, capacity);
  EXPECT_EQ(queue.head(), "head");
  EXPECT_EQ(capacity.RoomFor(half, 10), 0) << "n3 is free, but the head waits for it and one more node";
  EXPECT_TRUE(queue.MayUseClaim("head", Of(0, 1)));
  EXPECT_TRUE(queue.MayUseClaim("new-and-important", Of(1, 9)));
  EXPECT_FALSE(queue.MayUseClaim("new", Of(0, 9)));
  EXPECT_FALSE(queue.MayUseClaim("grows", {false, true, 1, 0}));
  {
    const Capacity::WithoutClaim lifted(capacity);
    EXPECT_EQ(capacity.RoomFor(half, 10), 2);
  }
  EXPECT_FALSE(capacity.Reserve({"small"}, half));
  // A node that is not part of the claim may be used.
  capacity.RemovePod("runs-2");
  queue.Refresh(capacity);
  EXPECT_EQ(capacity.RoomFor(half, 10), 0) << "now both nodes are free for the head";
  EXPECT_EQ(Ready(queue, capacity), (Names{"head"}));
  capacity.RemovePod("runs-0");
  EXPECT_EQ(capacity.RoomFor(half, 10), 2);
  {
    const Capacity::WithoutClaim lifted(capacity);
    EXPECT_TRUE(capacity.Reserve({"h0", "h1"}, whole));
  }
  queue.Remove("head", capacity);
  EXPECT_EQ(queue.head(), "");
  EXPECT_EQ(capacity.RoomFor(half, 10), 2);
}

TEST(RoomQueue, OthersFillWhatTheHeadCannotUse) {
  Capacity capacity = NodesOf8(3);
  for (int i = 0; i < 3; ++i) capacity.SetPod(fmt::format("runs-{}", i), {{kGpus, 6}}, fmt::format("n{}", i));
  RoomQueue queue;
  queue.Set("head", {GpuShape(8), 1, {}, Of(0, 1)}, capacity);
  // The head waits for one of the nodes. Two have 2 GPUs left that it does not wait for.
  EXPECT_EQ(capacity.RoomFor(GpuShape(2), 10), 2);
}

TEST(RoomQueue, AGangThatIsTooLargeForTheNodesKeepsNothing) {
  Capacity capacity = NodesOf8(4);
  capacity.SetPod("daemon", {{kGpus, 1}}, "n0", /*lasting=*/true);
  capacity.SetPod("job", {{kGpus, 1}}, "n1");
  RoomQueue queue;
  queue.Set("five", {GpuShape(8), 5, {}, Of(0, 1)}, capacity);
  queue.Set("four", {GpuShape(8), 4, {}, Of(0, 2)}, capacity);
  EXPECT_EQ(queue.head(), "") << "the daemon never leaves n0";
  EXPECT_EQ(capacity.RoomFor(GpuShape(8), 10), 2);
  queue.Set("three", {GpuShape(8), 3, {}, Of(0, 3)}, capacity);
  EXPECT_EQ(queue.head(), "three");
  EXPECT_EQ(capacity.RoomFor(GpuShape(8), 10), 0);
  EXPECT_EQ(capacity.RoomFor(GpuShape(7), 10), 1) << "n0";
  capacity.RemovePod("daemon");
  capacity.SetNode(NodeWith("n4", 8));
  EXPECT_EQ(Ready(queue, capacity), Names{}) << "the one on n1 must end first";
  EXPECT_EQ(queue.head(), "five");
}

TEST(RoomQueue, TheClaimStaysInItsDomain) {
  Capacity capacity;
  for (int i = 0; i < 4; ++i) capacity.SetNode(NodeWith(fmt::format("a{}", i), 8, "a"));
  for (int i = 0; i < 4; ++i) capacity.SetNode(NodeWith(fmt::format("b{}", i), 8, "b"));
  for (int i = 0; i < 4; ++i) {
    if (i > 0) capacity.SetPod(fmt::format("ra{}", i), {{kGpus, 8}}, fmt::format("a{}", i));
    capacity.SetPod(fmt::format("rb{}", i), {{kGpus, 8}}, fmt::format("b{}", i));
  }
  RoomQueue queue;
  queue.Set("head", {GpuShape(8, "rack"), 4, {}, Of(0, 1)}, capacity);
  EXPECT_EQ(capacity.RoomFor(GpuShape(8), 10), 0) << "a0 is claimed";
  capacity.RemovePod("rb0");
  capacity.RemovePod("rb1");
  queue.Refresh(capacity);
  EXPECT_EQ(capacity.RoomFor(GpuShape(8), 10), 2) << "the claim is still in rack a";
  capacity.SetNode(NodeWith("a0", 0, "a"));  // now the rack is too small
  queue.Refresh(capacity);
  EXPECT_EQ(capacity.RoomFor(GpuShape(8), 10), 0) << "the claim has moved to rack b";
}

TEST(RoomQueue, AClaimedNodeMayDisappear) {
  Capacity capacity = NodesOf8(2);
  RoomQueue queue;
  queue.Set("head", {GpuShape(8), 3, {}, Of(0, 1)}, capacity);
  EXPECT_EQ(queue.head(), "");
  queue.Set("small", {GpuShape(8), 2, {}, Of(0, 2)}, capacity);
  EXPECT_EQ(queue.head(), "small");
  capacity.RemoveNode("n1");
  capacity.SetNode(NodeWith("n2", 8));  // may get the number of the removed one
  capacity.SetNode(NodeWith("n3", 8));
  queue.Refresh(capacity);
  EXPECT_EQ(queue.head(), "head");
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 100), 0);
  queue.Remove("head", capacity);
  queue.Remove("small", capacity);
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 100), 24);
}

// A cluster with a queue and jobs that end after a random time. Small gangs come as long as the test wants.
class RandomCluster {
 public:
  static constexpr int64_t kLongest = 20;  // a job ends in this time

  explicit RandomCluster(uint64_t seed) : rng_(seed), capacity_(NodesOf8(kNodes)) {}

  // One unit of time: jobs end, one arrives, the queue is served.
  void Step(bool arrivals) {
    now_ += 1;
    while (!running_.empty() && running_.begin()->first <= now_) {
      for (const std::string& pod : running_.begin()->second) capacity_.RemovePod(pod);
      running_.erase(running_.begin());
    }
    if (arrivals) {
      const bool large = rng_.Chance(0.02);
      const int32_t pods = large ? kNodes : static_cast<int32_t>(1 + rng_.Below(3));
      const auto gpus = static_cast<size_t>(large ? 3 : rng_.Below(4));
      waiting_[fmt::format("j{:06}", now_)] = {shapes_[gpus], pods, {}, Of(0, now_)};
      Try(fmt::format("j{:06}", now_));  // a newcomer is decided at once
    }
    for (const std::string& job : Ready(queue_, capacity_)) Try(job);
    CheckNodes();
    head_for_ = queue_.head() == head_ ? head_for_ + 1 : 0;
    head_ = queue_.head();
  }
  // For how long the head has been the head.
  int64_t head_for() const { return head_.empty() ? 0 : head_for_; }
  size_t waiting() const { return waiting_.size(); }
  int64_t started() const { return started_; }

 private:
  static constexpr int kNodes = 6;

  void Try(const std::string& job) {
    const RoomQueue::Wait wait = waiting_.at(job);
    Names pods;
    for (int32_t i = 0; i < wait.pods; ++i) pods.push_back(fmt::format("{}-{}", job, i));
    bool reserved = false;
    {
      std::optional<Capacity::WithoutClaim> lifted;
      if (queue_.MayUseClaim(job, wait.standing)) lifted.emplace(capacity_);
      reserved = capacity_.Reserve(pods, wait.shape);
    }
    if (!reserved) return queue_.Set(job, wait, capacity_);
    queue_.Remove(job, capacity_);
    queue_.Refresh(capacity_);
    for (const std::string& pod : pods) placed_[pod] = wait.shape->requests.at(kGpus);
    running_.emplace(now_ + 1 + static_cast<int64_t>(rng_.Below(kLongest)), pods);
    waiting_.erase(job);
    started_ += 1;
  }
  // No room is given twice.
  void CheckNodes() {
    int64_t used = 0;
    for (const auto& [at, pods] : running_)
      for (const std::string& pod : pods) {
        EXPECT_NE(capacity_.ReservedFor(pod), nullptr);
        used += placed_.at(pod);
      }
    EXPECT_LE(used, 8 * kNodes);
  }

  SplitMix64 rng_;
  Capacity capacity_;
  RoomQueue queue_;
  std::vector<Capacity::Shape> shapes_ = {GpuShape(1), GpuShape(2), GpuShape(4), GpuShape(8)};
  std::map<std::string, RoomQueue::Wait> waiting_;
  std::multimap<int64_t, Names> running_;  // by the time of their end
  std::map<std::string, int64_t> placed_;
  int64_t now_ = 0;
  std::string head_;
  int64_t head_for_ = 0;
  int64_t started_ = 0;
};

// Whatever arrives: each head starts within the time of the longest job, so each gang starts after its
// elders.
TEST(RoomQueue, LargeGangsDoNotStarve) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomCluster cluster(seed);
    for (int i = 0; i < 400 || cluster.waiting() > 0; ++i) {
      cluster.Step(i < 400);
      ASSERT_LE(cluster.head_for(), RandomCluster::kLongest + 1) << "seed " << seed << ", step " << i;
    }
    EXPECT_EQ(cluster.started(), 400) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ringmaster::core
