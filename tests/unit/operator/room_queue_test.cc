// SPDX-License-Identifier: Apache-2.0

#include "operator/core/queue/room_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/sanitizers.h"
#include "operator/core/capacity/capacity.h"

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
  node.labels = {{"node", name}, {"rack", rack}};
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
  EXPECT_TRUE(queue.MayUseClaim("head", Of(0, 1), capacity));
  EXPECT_TRUE(queue.MayUseClaim("new-and-important", Of(1, 9), capacity));
  EXPECT_FALSE(queue.MayUseClaim("new", Of(0, 9), capacity));
  EXPECT_FALSE(queue.MayUseClaim("grows", {false, true, 1, 0}, capacity));
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

// Workers with 6 GPUs and two other pods with 3: the nodes hold each kind alone, and never all of them.
TEST(RoomQueue, AGangThatTheNodesHoldOnlyInPartIsNotTheHead) {
  Capacity capacity = NodesOf8(2);
  RoomQueue queue;
  const Capacity::Shape workers = GpuShape(6);
  const Capacity::Shape wide = GpuShape(3);
  const Capacity::Shape narrow = GpuShape(2);
  queue.Set("a-wide", {wide, 1, {}, Of(0, 1), false, {{workers, 2}, {wide, 1}}, 1}, capacity);
  EXPECT_EQ(queue.head(), "");
  queue.Set("narrow", {narrow, 1, {}, Of(0, 2), false, {{workers, 2}, {narrow, 1}}, 1}, capacity);
  EXPECT_EQ(queue.head(), "narrow");
  capacity.SetNode(NodeWith("n2", 8));
  queue.Refresh(capacity);
  EXPECT_EQ(queue.head(), "a-wide");
}

// The worker of the head has room on n1, and its other pod waits for n0.
TEST(RoomQueue, TheHeadKeepsTheRoomOfAllItsPods) {
  Capacity capacity = NodesOf8(2);
  capacity.SetPod("ends", {{kGpus, 8}}, "n0");
  RoomQueue queue;
  queue.Set("head", {GpuShape(4), 1, {}, Of(0, 1), false, {{GpuShape(8), 1}}, 1}, capacity);
  ASSERT_EQ(queue.head(), "head");
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 100), 0);
  capacity.RemovePod("ends");
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 100), 4);
  EXPECT_EQ(Ready(queue, capacity), Names{"head"});
  // The domain that the first kind would choose has no room for the other one.
  for (int i = 2; i < 4; ++i) capacity.SetNode(NodeWith(fmt::format("n{}", i), 8, "other"));
  capacity.SetPod("stays", {{kGpus, 6}}, "n2", /*lasting=*/true);
  capacity.SetPod("ends-0", {{kGpus, 8}}, "n0");
  capacity.SetPod("ends-1", {{kGpus, 8}}, "n1");
  queue.Set("head", {GpuShape(8, "rack"), 1, {}, Of(0, 1), false, {{GpuShape(4, "rack"), 1}}, 0}, capacity);
  ASSERT_EQ(queue.head(), "head");
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 100), 10)
      << "all of the other rack; the claim is for the first one";
}

// A cluster with a queue and jobs that end after a random time. Small gangs come as long as the test wants.
class RandomCluster {
 public:
  static constexpr int64_t kLongest = 20;  // a job ends in this time

  // `mixed`: some gangs have pods of two kinds.
  RandomCluster(uint64_t seed, bool mixed) : rng_(seed), capacity_(NodesOf8(kNodes)), mixed_(mixed) {}

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
      RoomQueue::Wait& wait = waiting_[fmt::format("j{:06}", now_)];
      wait = {shapes_[gpus], pods, {}, Of(0, now_)};
      if (mixed_ && !large && rng_.Chance(0.5)) {
        wait.more.push_back({shapes_[rng_.Below(4)], static_cast<int32_t>(1 + rng_.Below(2))});
        wait.earlier = rng_.Below(2);
      }
      Try(fmt::format("j{:06}", now_));  // a newcomer is decided at once
    }
    for (const std::string& job : Ready(queue_, capacity_)) Try(job);
    CheckNodes();
    head_for_ = queue_.head() == head_ ? head_for_ + 1 : 0;
    head_ = queue_.head();
  }
  // Another leader begins: it knows the pods that run, and the jobs that wait, in any order. It does not know
  // which nodes the head's room was claimed on.
  void ChangeLeader() {
    Capacity capacity = NodesOf8(kNodes);
    for (const auto& [at, pods] : running_)
      for (const std::string& pod : pods)
        capacity.SetPod(pod, {{kGpus, placed_.at(pod)}}, capacity_.DomainOf(pod, "node").value());
    RoomQueue queue;
    std::vector<std::string> jobs;
    for (const auto& [job, wait] : waiting_) jobs.push_back(job);
    while (!jobs.empty()) {
      const size_t which = rng_.Below(jobs.size());
      queue.Set(jobs[which], waiting_.at(jobs[which]), capacity);
      jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(which));
    }
    EXPECT_EQ(queue.head(), queue_.head());
    EXPECT_EQ(queue.size(), queue_.size());
    capacity_ = std::move(capacity);
    queue_ = std::move(queue);
    head_for_ = 0;
    leaders_ += 1;
  }
  // For how long the head has been the head under this leader.
  int64_t head_for() const { return head_.empty() ? 0 : head_for_; }
  size_t waiting() const { return waiting_.size(); }
  int64_t started() const { return started_; }
  int64_t leaders() const { return leaders_; }

 private:
  static constexpr int kNodes = 6;

  void Try(const std::string& job) {
    const RoomQueue::Wait wait = waiting_.at(job);
    Names pods;
    std::vector<Capacity::Ask> gang;
    for (const RoomQueue::Need& need : wait.Needs()) {
      Capacity::Ask& ask = gang.emplace_back();
      ask.shape = need.shape;
      for (int32_t i = 0; i < need.pods; ++i) {
        ask.pods.push_back(fmt::format("{}-{}-{}", job, gang.size(), i));
        placed_[ask.pods.back()] = need.shape->requests.at(kGpus);
        pods.push_back(ask.pods.back());
      }
    }
    bool reserved = false;
    {
      std::optional<Capacity::WithoutClaim> lifted;
      if (queue_.MayUseClaim(job, wait.standing, capacity_)) lifted.emplace(capacity_);
      reserved = capacity_.Reserve(gang);
    }
    if (!reserved) return queue_.Set(job, wait, capacity_);
    queue_.Remove(job, capacity_);
    queue_.Refresh(capacity_);
    running_.emplace(now_ + 1 + static_cast<int64_t>(rng_.Below(kLongest)), pods);
    waiting_.erase(job);
    started_ += 1;
  }
  // No room is given twice.
  void CheckNodes() {
    int64_t used = 0;
    for (const auto& [at, pods] : running_)
      for (const std::string& pod : pods) {
        EXPECT_TRUE(capacity_.DomainOf(pod, "node").has_value());
        used += placed_.at(pod);
      }
    EXPECT_LE(used, 8 * kNodes);
  }

  SplitMix64 rng_;
  Capacity capacity_;
  bool mixed_;
  RoomQueue queue_;
  std::vector<Capacity::Shape> shapes_ = {GpuShape(1), GpuShape(2), GpuShape(4), GpuShape(8)};
  std::map<std::string, RoomQueue::Wait> waiting_;
  std::multimap<int64_t, Names> running_;  // by the time of their end
  std::map<std::string, int64_t> placed_;
  int64_t now_ = 0;
  std::string head_;
  int64_t head_for_ = 0;
  int64_t started_ = 0;
  int64_t leaders_ = 1;
};

// Whatever arrives: each head starts within the time of the longest job, so each gang starts after its
// elders.
TEST(RoomQueue, LargeGangsDoNotStarve) {
#ifdef RINGMASTER_ADDRESS_SANITIZER
  constexpr uint64_t kSeeds = 20;  // 25 times slower
#else
  constexpr uint64_t kSeeds = 220;
#endif
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RandomCluster cluster(seed, /*mixed=*/seed % 10 == 0);
    for (int i = 0; i < 400 || cluster.waiting() > 0; ++i) {
      cluster.Step(i < 400);
      ASSERT_LE(cluster.head_for(), RandomCluster::kLongest + 1) << "seed " << seed << ", step " << i;
    }
    EXPECT_EQ(cluster.started(), 400) << "seed " << seed;
  }
}

// Each leader has the same head. It claims the room from scratch, so the head may wait for other jobs than
// before: it starts within the time of the longest job after the change.
TEST(RoomQueue, AnotherLeaderHasTheSameHead) {
  int64_t changes = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SplitMix64 rng(seed);
    RandomCluster cluster(seed, /*mixed=*/seed % 10 == 0);
    for (int i = 0; i < 400 || cluster.waiting() > 0; ++i) {
      cluster.Step(i < 400);
      ASSERT_LE(cluster.head_for(), RandomCluster::kLongest + 1) << "seed " << seed << ", step " << i;
      if (i < 400 && rng.Chance(0.05)) cluster.ChangeLeader();
    }
    EXPECT_EQ(cluster.started(), 400) << "seed " << seed;
    changes += cluster.leaders() - 1;
  }
  EXPECT_GT(changes, 600);
}

// The order of all, by priority, age and the shares of namespaces, is that of the jobs and pods that exist,
// in whatever order a leader learns of them.
TEST(RoomQueue, AnotherLeaderHasTheSameOrder) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SplitMix64 rng(seed);
    const RoomQueue::FairShare shares{200, {{"a", 3}}};
    std::map<std::string, int64_t> pods;
    for (const char* space : {"a", "b", "c"})
      pods[fmt::format("{}/runs", space)] = static_cast<int64_t>(rng.Below(9));
    std::vector<std::pair<std::string, RoomQueue::Wait>> jobs;
    for (int i = 0; i < 30; ++i) {
      const std::string job = fmt::format("{}/{}", "abc"[rng.Below(3)], i);
      const auto priority = static_cast<int32_t>(rng.Below(3));
      jobs.emplace_back(
          job, RoomQueue::Wait{GpuShape(1), 1, {}, Of(priority, static_cast<int64_t>(rng.Below(20)))});
    }
    const auto order = [&] {
      Capacity capacity = NodesOf8(8);
      int node = 0;
      for (const auto& [pod, gpus] : pods) capacity.SetPod(pod, {{kGpus, gpus}}, fmt::format("n{}", node++));
      RoomQueue queue(shares);
      for (const auto& [job, wait] : jobs) queue.Set(job, wait, capacity);
      Names found = Ready(queue, capacity);
      EXPECT_EQ(found.size(), jobs.size());
      EXPECT_EQ(queue.head(), found.front());
      return found;
    };
    const Names first = order();
    for (size_t i = jobs.size(); i > 1; --i) std::swap(jobs[i - 1], jobs[rng.Below(i)]);
    EXPECT_EQ(order(), first) << "seed " << seed;
  }
}

// ---- backfill

// The claimed room is partly free, and some of the rest never becomes free. Others take neither what is free
// for the head nor what will be.
TEST(RoomQueue, BackfillLeavesWhatTheHeadWaitsFor) {
  Capacity capacity = NodesOf8(4);
  capacity.SetPod("daemon-0", {{kGpus, 4}}, "n0", /*lasting=*/true);
  capacity.SetPod("daemon-1", {{kGpus, 1}}, "n1", /*lasting=*/true);
  capacity.SetPod("ends-2", {{kGpus, 5}}, "n2");
  capacity.SetPod("ends-3", {{kGpus, 8}}, "n3");
  RoomQueue queue;
  // Room for pods of 4 GPUs: one on n0 and one on n1 now, one on n2 and two on n3 later.
  queue.Set("head", {GpuShape(4), 3, {}, Of(0, 1)}, capacity);
  ASSERT_EQ(queue.head(), "head");
  EXPECT_EQ(capacity.RoomFor(GpuShape(4), 10), 0);
  EXPECT_EQ(capacity.RoomFor(GpuShape(1), 10), 3) << "3 on n1; the rest of n2 is claimed with what is in use";
  ASSERT_TRUE(capacity.Reserve({"small-0", "small-1", "small-2"}, GpuShape(1)));
  capacity.RemovePod("ends-2");
  EXPECT_EQ(Ready(queue, capacity), (Names{"head"}));
  const Capacity::WithoutClaim lifted(capacity);
  EXPECT_TRUE(capacity.Reserve({"head-0", "head-1", "head-2"}, GpuShape(4)));
}

// Over random clusters with lasting pods: no job that starts after the head keeps it from starting when the
// pods have ended that were on its nodes when it became the head.
TEST(RoomQueue, BackfillDoesNotDelayTheHead) {
  int64_t backfilled = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SplitMix64 rng(seed);
    constexpr int kNodes = 5;
    Capacity capacity = NodesOf8(kNodes);
    std::vector<int64_t> free(kNodes, 8);
    Names ends;
    for (int n = 0; n < kNodes; ++n) {
      const std::string node = fmt::format("n{}", n);
      const auto lasting = static_cast<int64_t>(rng.Below(5));
      if (lasting > 0) capacity.SetPod("daemon-" + node, {{kGpus, lasting}}, node, true);
      free[static_cast<size_t>(n)] -= lasting;
      while (rng.Chance(0.7)) {
        const auto gpus = static_cast<int64_t>(1 + rng.Below(4));
        if (gpus > free[static_cast<size_t>(n)]) break;
        ends.push_back(fmt::format("ends-{}-{}", n, ends.size()));
        capacity.SetPod(ends.back(), {{kGpus, gpus}}, node);
        free[static_cast<size_t>(n)] -= gpus;
      }
    }
    const RoomQueue::Wait wait{GpuShape(static_cast<int64_t>(1 + rng.Below(8))),
                               static_cast<int32_t>(1 + rng.Below(6)),
                               {},
                               Of(0, 1)};
    if (capacity.RoomFor(wait.shape, wait.pods) >= wait.pods) continue;
    RoomQueue queue;
    queue.Set("head", wait, capacity);
    if (queue.head().empty()) continue;  // the nodes cannot hold it
    // Jobs that never end fill what they may, and the pods end in any order.
    for (int i = 0; !ends.empty(); ++i) {
      for (int64_t gpus = 8; gpus > 0; --gpus) {
        const std::string job = fmt::format("small-{}-{}", i, gpus);
        if (rng.Chance(0.5) && capacity.Reserve({job}, GpuShape(gpus))) backfilled += 1;
      }
      const size_t which = rng.Below(ends.size());
      capacity.RemovePod(ends[which]);
      ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(which));
      queue.Refresh(capacity);
    }
    const Capacity::WithoutClaim lifted(capacity);
    EXPECT_GE(capacity.RoomFor(wait.shape, wait.pods), wait.pods) << "seed " << seed;
  }
  EXPECT_GT(backfilled, 500);
}

// ---- shares of namespaces

TEST(RoomQueue, TheNamespaceThatUsesLessForItsWeightComesFirst) {
  Capacity capacity = NodesOf8(10);
  RoomQueue queue({1000, {{"heavy", 4}}});
  for (int i = 0; i < 4; ++i) {
    capacity.SetPod(fmt::format("heavy/runs-{}", i), {{kGpus, 8}}, fmt::format("n{}", i));
    capacity.SetPod(fmt::format("light/runs-{}", i), {{kGpus, 4}}, fmt::format("n{}", i + 4));
  }
  EXPECT_DOUBLE_EQ(capacity.ShareOf("heavy"), 0.4);
  EXPECT_DOUBLE_EQ(capacity.ShareOf("light"), 0.2);
  EXPECT_DOUBLE_EQ(capacity.ShareOf("none"), 0);
  const Capacity::Shape whole = GpuShape(8);
  queue.Set("light/a", {whole, 9, {}, Of(0, 1)}, capacity);   // as created at 201
  queue.Set("heavy/b", {whole, 9, {}, Of(0, 50)}, capacity);  // at 150
  queue.Set("none/c", {whole, 9, {}, Of(0, 160)}, capacity);  // at 160
  EXPECT_EQ(queue.head(), "heavy/b");
  EXPECT_TRUE(queue.MayUseClaim("none/d", Of(0, 149), capacity));
  EXPECT_FALSE(queue.MayUseClaim("none/d", Of(0, 151), capacity));
  EXPECT_FALSE(queue.MayUseClaim("light/d", Of(0, 0), capacity));
  EXPECT_TRUE(queue.MayUseClaim("light/d", Of(1, 999), capacity)) << "priority comes first";
  queue.Remove("heavy/b", capacity);
  EXPECT_EQ(queue.head(), "none/c");
  for (int i = 0; i < 4; ++i) capacity.RemovePod(fmt::format("light/runs-{}", i));
  queue.Refresh(capacity);
  EXPECT_EQ(queue.head(), "light/a") << "its namespace uses nothing any more, and it is older";
}

TEST(RoomQueue, ASweepCountsWhatItOffers) {
  Capacity capacity = NodesOf8(4);
  RoomQueue queue({1000, {{"c", 2}}});
  const Capacity::Shape whole = GpuShape(8);
  for (int i = 0; i < 4; ++i)
    for (const char* space : {"a", "b", "c"})
      queue.Set(fmt::format("{}/{}", space, i), {whole, 1, {}, Of(0, i)}, capacity);
  EXPECT_EQ(Ready(queue, capacity), (Names{"a/0", "b/0", "c/0", "c/1"}));
}

// Whatever other namespaces do, a job waits for them no longer than span / weight, and then for its elders.
TEST(RoomQueue, SharesStarveNobody) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    constexpr int64_t kSpan = 100;
    SplitMix64 rng(seed);
    Capacity capacity = NodesOf8(4);
    RoomQueue queue({kSpan, {}});
    // "big" holds half of the cluster for ever. A new namespace, which uses nothing, comes at each moment.
    for (int i = 0; i < 2; ++i)
      capacity.SetPod(fmt::format("big/runs-{}", i), {{kGpus, 8}}, fmt::format("n{}", i));
    const Capacity::Shape whole = GpuShape(8);
    std::multimap<int64_t, std::string> running;
    std::map<std::string, RoomQueue::Wait> waiting;
    waiting["big/next"] = {whole, 2, {}, Of(0, 0)};
    int64_t started = 0;
    for (int64_t now = 0; started == 0 && now < 10 * kSpan; ++now) {
      while (!running.empty() && running.begin()->first <= now) {
        capacity.RemovePod(running.begin()->second);
        running.erase(running.begin());
      }
      waiting[fmt::format("s{}/job", now)] = {whole, 1, {}, Of(0, now)};
      for (const auto& [job, wait] : waiting) queue.Set(job, wait, capacity);
      for (const std::string& job : Ready(queue, capacity)) {
        const RoomQueue::Wait wait = waiting.at(job);
        std::optional<Capacity::WithoutClaim> lifted;
        if (queue.MayUseClaim(job, wait.standing, capacity)) lifted.emplace(capacity);
        Names pods;
        for (int32_t i = 0; i < wait.pods; ++i) pods.push_back(fmt::format("{}-{}", job, i));
        if (!capacity.Reserve(pods, wait.shape)) continue;
        lifted.reset();
        for (const std::string& pod : pods)
          running.emplace(now + 1 + static_cast<int64_t>(rng.Below(5)), pod);
        waiting.erase(job);
        queue.Remove(job, capacity);
        if (job == "big/next") started = now;
      }
    }
    EXPECT_GT(started, 0) << "seed " << seed;
    EXPECT_LE(started, 2 * kSpan) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ringmaster::core
