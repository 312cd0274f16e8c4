// SPDX-License-Identifier: Apache-2.0

#include "operator/core/queue/preemption.h"

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
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

const char* const kGpuName = "nvidia.com/gpu";

Capacity::Shape ShapeOf(int64_t gpus, const std::string& topology_key = "") {
  PodShape shape;
  shape.requests[kGpuName] = gpus;
  shape.topology_key = topology_key;
  return std::make_shared<const PodShape>(std::move(shape));
}

// Nodes with jobs, and the head that waits.
struct Stage {
  explicit Stage(int count, int64_t gpus = 8) {
    for (int i = 0; i < count; ++i) AddNode(i, gpus);
  }
  void AddNode(int i, int64_t gpus, const std::string& rack = "r") {
    NodeFacts node;
    node.name = fmt::format("n{}", i);
    node.allocatable = {{kGpuName, gpus}, {"pods", 100}};
    node.labels["rack"] = rack;
    capacity.SetNode(std::move(node));
  }
  // A job with a pod of `gpus` on each of these nodes.
  RoomHolder& Runs(const std::string& job, int32_t priority, int64_t created, int32_t least,
                   const std::vector<int>& nodes, int64_t gpus = 8) {
    RoomHolder& holder = holders.emplace_back();
    holder.job = job;
    holder.priority = priority;
    holder.created = created;
    holder.preemptible = true;
    holder.workers = holder.wanted = static_cast<int32_t>(nodes.size());
    holder.least = least;
    for (size_t rank = 0; rank < nodes.size(); ++rank) {
      holder.staying.push_back({static_cast<int32_t>(rank), fmt::format("{}-{}", job, rank)});
      capacity.SetPod(holder.staying.back().pod, {{kGpuName, gpus}}, fmt::format("n{}", nodes[rank]));
    }
    return holder;
  }
  PreemptionPlan Plan(const Capacity::Shape& shape, int32_t pods, int32_t priority = 10,
                      std::vector<RoomQueue::Need> more = {}) {
    RoomQueue::Wait wait{shape, pods, {}, {false, false, priority, 0}, true, std::move(more)};
    return PlanPreemption(capacity, "ml/head", wait, holders);
  }
  Capacity capacity;
  std::vector<RoomHolder> holders;
};

using Victims = std::vector<Victim>;

TEST(Preemption, RoomOfLostPodsIsThatOfTheirReplacements) {
  Stage cluster(3);
  cluster.Runs("victim", 0, 1, 1, {0});
  RoomHolder& other = cluster.Runs("other", 20, 1, 2, {1});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, (Victims{{"victim", 1, 0}}));
  other.lost = 1;
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, Victims{});
}

TEST(Preemption, ElasticJobsShrinkByWhatTheHeadNeeds) {
  Stage cluster(6);
  cluster.Runs("old", 0, 1, 1, {0, 1, 2});
  cluster.Runs("young", 0, 2, 1, {3, 4, 5});
  const PreemptionPlan plan = cluster.Plan(ShapeOf(8), 1);
  EXPECT_EQ(plan.victims, (Victims{{"young", 3, 2}}));
  EXPECT_EQ(plan.leaving, (std::vector<std::string>{"young-2"}));
  EXPECT_EQ(plan.text, "young (3 to 2 workers)");
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 3).victims, (Victims{{"young", 3, 1}, {"old", 3, 2}}));
  EXPECT_EQ(cluster.capacity.RoomFor(ShapeOf(8), 10), 0) << "a plan changes nothing";
}

TEST(Preemption, TheLowestPriorityComesFirst) {
  Stage cluster(4);
  cluster.Runs("low", -5, 1, 1, {0, 1});
  cluster.Runs("young", 0, 9, 1, {2, 3});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1).victims, (Victims{{"low", 2, 1}}));
}

TEST(Preemption, NeverOfTheSameOrAHigherPriority) {
  Stage cluster(3);
  cluster.Runs("same", 10, 5, 1, {0, 1});
  cluster.Runs("higher", 11, 5, 1, {2});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1).victims, Victims{});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1, 12).victims, (Victims{{"same", 2, 1}}));
}

TEST(Preemption, WholeJobsStopOnlyWhenShrinkingIsNotEnough) {
  Stage cluster(6);
  cluster.Runs("elastic", 0, 9, 1, {0, 1});
  cluster.Runs("fixed", 0, 5, 2, {2, 3});
  cluster.Runs("oldest", 0, 1, 2, {4, 5});
  // One GPU node is gained by shrinking. Three are needed: the youngest whole job does not give enough.
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 3).victims, (Victims{{"elastic", 2, 1}, {"fixed", 2, 0}}));
  // Two nodes: the job that stops frees both, so the elastic one need not shrink in addition.
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, (Victims{{"elastic", 2, 0}}));
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 6).victims.size(), 3u);
}

TEST(Preemption, NeverInVain) {
  Stage cluster(3);
  cluster.Runs("low", 0, 1, 1, {0, 1});
  cluster.Runs("higher", 20, 1, 1, {2});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 3).victims, Victims{});
  // Freeing half of a node does not help a job that needs a whole one.
  Stage shared(1);
  shared.Runs("low", 0, 1, 0, {0}, 4);
  shared.capacity.SetPod("daemon", {{kGpuName, 1}}, "n0", true);
  EXPECT_EQ(shared.Plan(ShapeOf(8), 1).victims, Victims{});
  EXPECT_EQ(shared.Plan(ShapeOf(7), 1).victims.size(), 1u);
}

// One of its pods has ended, and its room is free, but the head has not asked for room for the next one yet.
TEST(Preemption, NeverForAHeadOfWhichMoreIsMissingThanItAskedFor) {
  Stage cluster(4);
  cluster.Runs("victim", 0, 1, 2, {0, 1, 2});
  RoomHolder& head = cluster.Runs("ml/head", 10, 1, 4, {});
  head.missing = 3;
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, Victims{});
  head.missing = 2;
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, (Victims{{"victim", 3, 2}}));
}

TEST(Preemption, RoomThatBecomesFreeAnywayCounts) {
  Stage cluster(4);
  RoomHolder& ending = cluster.Runs("ending", 30, 1, 1, {0, 1});
  for (const RoomHolder::Place& place : ending.staying) ending.leaving.push_back(place.pod);
  ending.staying.clear();
  cluster.Runs("low", 0, 1, 1, {2, 3});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, Victims{});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).leaving, (std::vector<std::string>{"ending-0", "ending-1"}));
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 3).victims, (Victims{{"low", 2, 1}}));
}

TEST(Preemption, InOneDomain) {
  Stage cluster(0);
  for (int i = 0; i < 3; ++i) cluster.AddNode(i, 8, "a");
  for (int i = 3; i < 6; ++i) cluster.AddNode(i, 8, "b");
  cluster.Runs("across", 0, 9, 1, {0, 3, 4});
  cluster.Runs("in-a", 0, 1, 1, {1, 2});
  cluster.capacity.SetPod("other", {{kGpuName, 8}}, "n5");
  // Rack b can have two free nodes.
  EXPECT_EQ(cluster.Plan(ShapeOf(8, "rack"), 2).victims, (Victims{{"across", 3, 1}}));
}

TEST(Preemption, EveryShapeOfTheGangMustFit) {
  Stage cluster(2);
  cluster.Runs("low", 0, 1, 1, {0, 1}, 6);
  // One node becomes free for the worker, and the other has room for the chief.
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1, 10, {{ShapeOf(2), 1}}).victims, (Victims{{"low", 2, 1}}));
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1, 10, {{ShapeOf(4), 1}}).victims, (Victims{{"low", 2, 0}}));
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1, 10, {{ShapeOf(4), 3}}).victims, Victims{});
}

// A pod that the scheduler may see gets the next room, also that of a victim.
TEST(Preemption, PodsThatWereLetThroughComeFirst) {
  Stage cluster(2);
  cluster.Runs("low", 0, 1, 1, {0, 1});
  cluster.capacity.ExpectPod("late", ShapeOf(8));
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 2).victims, Victims{});
  EXPECT_EQ(cluster.Plan(ShapeOf(8), 1).victims, (Victims{{"low", 2, 0}}));
  EXPECT_EQ(cluster.capacity.Unplaced().size(), 1u);
}

// Over random clusters: the head fits afterwards, and no victim gives up anything needlessly.
TEST(Preemption, PlansAreSufficientAndMinimal) {
  int with_shrunk = 0;
  int with_whole = 0;
  int without = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SplitMix64 rng(seed);
    const int nodes = 3 + static_cast<int>(rng.Below(5));
    Stage cluster(nodes);
    std::vector<int64_t> free(static_cast<size_t>(nodes), 8);
    for (int i = 0; i < 6; ++i) {
      const auto gpus = static_cast<int64_t>(1 + rng.Below(8));
      std::vector<int> on;
      for (int n = 0; n < nodes; ++n) {
        if (free[static_cast<size_t>(n)] < gpus || rng.Chance(0.4)) continue;
        on.push_back(n);
        free[static_cast<size_t>(n)] -= gpus;
      }
      if (on.empty()) continue;
      const auto least = static_cast<int32_t>(1 + rng.Below(on.size()));
      cluster.Runs(fmt::format("j{}", i), static_cast<int32_t>(rng.Below(4)), i, least, on, gpus);
    }
    const Capacity::Shape shape = ShapeOf(static_cast<int64_t>(1 + rng.Below(8)));
    const auto pods = static_cast<int32_t>(1 + rng.Below(6));
    constexpr int32_t kPriority = 2;
    const PreemptionPlan plan = cluster.Plan(shape, pods, kPriority);
    std::map<std::string, int32_t> keeps;
    for (const RoomHolder& holder : cluster.holders) keeps[holder.job] = holder.workers;
    const auto fits = [&](const std::map<std::string, int32_t>& kept) {
      Capacity::Vacancy vacancy(cluster.capacity);
      for (const RoomHolder& holder : cluster.holders)
        for (const RoomHolder::Place& place : holder.staying)
          if (place.rank >= kept.at(holder.job)) vacancy.Remove(place.pod);
      return cluster.capacity.RoomFor(shape, pods) >= pods;
    };
    const bool fits_now = fits(keeps);
    auto least = keeps;
    auto none = keeps;
    for (const RoomHolder& holder : cluster.holders) {
      if (holder.priority < kPriority) {
        least[holder.job] = holder.least;
        none[holder.job] = 0;
      }
    }
    if (fits_now || !fits(none)) {
      EXPECT_EQ(plan.victims, Victims{}) << "seed " << seed;
      without += 1;
      continue;
    }
    auto after = keeps;
    bool whole = false;
    for (const Victim& victim : plan.victims) {
      after[victim.job] = victim.workers;
      whole = whole || victim.workers == 0;
      const auto holder = std::find_if(cluster.holders.begin(), cluster.holders.end(),
                                       [&](const RoomHolder& h) { return h.job == victim.job; });
      EXPECT_LT(holder->priority, kPriority) << "seed " << seed;
      EXPECT_TRUE(victim.workers == 0 || victim.workers >= holder->least) << "seed " << seed;
    }
    EXPECT_TRUE(fits(after)) << "seed " << seed;
    EXPECT_EQ(whole, !fits(least)) << "seed " << seed << ": whole jobs stop only if shrinking is not enough";
    for (const Victim& victim : plan.victims) {
      auto spared = after;
      const auto holder = std::find_if(cluster.holders.begin(), cluster.holders.end(),
                                       [&](const RoomHolder& h) { return h.job == victim.job; });
      spared[victim.job] = victim.workers == 0 ? holder->least : victim.workers + 1;
      EXPECT_TRUE(!fits(spared) || spared == after) << "seed " << seed << ": " << victim.job;
    }
    (whole ? with_whole : with_shrunk) += 1;
  }
  EXPECT_GT(with_shrunk, 100);
  EXPECT_GT(with_whole, 100);
  EXPECT_GT(without, 100);
}

// A cluster over time: jobs of three priorities, most of them elastic and with permission to preempt. Victims
// end their pods some steps after they were asked, grow again as there is room, and wait in their old place.
class PreemptingCluster {
 public:
  explicit PreemptingCluster(uint64_t seed) : rng_(seed), stage_(kNodes) {}

  void Step(bool arrivals) {
    now_ += 1;
    for (auto it = ending_.begin(); it != ending_.end() && it->first <= now_; it = ending_.erase(it))
      End(it->second.first, it->second.second);
    for (auto& [name, job] : jobs_) {
      if (!job.runs || job.stops || job.done || --job.left > 0) continue;
      for (const auto& [rank, pod] : job.pods) stage_.capacity.Unreserve(pod);
      job.pods.clear();
      job.done = true;
      done_ += 1;
    }
    if (arrivals && rng_.Chance(0.4)) Arrive();
    for (auto& [name, job] : jobs_)
      if (!job.runs && !job.done) Try(name, job);
    for (RoomQueue::Sweep sweep; !sweep.done();)
      for (const std::string& name : queue_.Ready(stage_.capacity, sweep)) Try(name, jobs_.at(name));
    Grow();
    Plan();
  }
  size_t open() const { return jobs_.size() - static_cast<size_t>(done_); }
  int shrunk() const { return shrunk_; }
  int stopped() const { return stopped_; }

 private:
  static constexpr int kNodes = 5;
  struct Job {
    RoomQueue::Wait wait;
    int32_t least = 1;
    int32_t allowed = 0;  // workers
    std::string by;       // the job for which it has fewer
    int64_t left = 0;     // steps
    bool runs = false;
    bool stops = false;
    bool done = false;
    std::map<int32_t, std::string> pods;
  };

  std::string PodOf(const std::string& name, int32_t rank) const { return fmt::format("{}-{}", name, rank); }

  void Arrive() {
    Job job;
    job.wait.shape = shapes_[rng_.Below(shapes_.size())];
    job.wait.pods = job.allowed = static_cast<int32_t>(1 + rng_.Below(kNodes));
    job.wait.standing = {false, false, static_cast<int32_t>(rng_.Below(3)), now_};
    job.wait.preempts = rng_.Chance(0.7);
    job.least = static_cast<int32_t>(1 + rng_.Below(static_cast<uint64_t>(job.wait.pods)));
    job.left = static_cast<int64_t>(1 + rng_.Below(30));
    jobs_.emplace(fmt::format("j{:04}", jobs_.size()), std::move(job));
  }

  void Try(const std::string& name, Job& job) {
    if (job.runs) return;
    std::vector<std::string> pods;
    for (int32_t rank = 0; rank < job.wait.pods; ++rank) pods.push_back(PodOf(name, rank));
    bool reserved = false;
    {
      std::optional<Capacity::WithoutClaim> lifted;
      if (queue_.MayUseClaim(name, job.wait.standing, stage_.capacity)) lifted.emplace(stage_.capacity);
      reserved = stage_.capacity.Reserve(pods, job.wait.shape);
    }
    if (!reserved) return queue_.Set(name, job.wait, stage_.capacity);
    queue_.Remove(name, stage_.capacity);
    job.runs = true;
    for (int32_t rank = 0; rank < job.wait.pods; ++rank) job.pods[rank] = PodOf(name, rank);
  }

  void Grow() {
    for (auto& [name, job] : jobs_) {
      if (!job.runs || job.stops || job.done) continue;
      if (!job.by.empty() && !queue_.Contains(job.by)) {
        job.by.clear();
        job.allowed = job.wait.pods;
      }
      for (int32_t rank = 0; rank < job.allowed; ++rank)
        if (!job.pods.contains(rank) && stage_.capacity.Reserve({PodOf(name, rank)}, job.wait.shape))
          job.pods[rank] = PodOf(name, rank);
    }
  }

  void Plan() {
    const RoomQueue::Wait* wait = queue_.HeadWait();
    if (wait == nullptr) return;
    std::vector<RoomHolder> holders;
    for (const auto& [name, job] : jobs_) {
      if (job.done) continue;
      RoomHolder& holder = holders.emplace_back();
      holder.job = name;
      holder.priority = job.wait.standing.priority;
      holder.created = job.wait.standing.created;
      holder.preemptible = true;
      holder.workers = job.allowed;
      holder.least = std::min(job.least, job.allowed);
      for (const auto& [rank, pod] : job.pods) {
        if (job.stops || rank >= job.allowed)
          holder.leaving.push_back(pod);
        else
          holder.staying.push_back({rank, pod});
      }
    }
    const int32_t priority = wait->standing.priority;
    const PreemptionPlan plan = PlanPreemption(stage_.capacity, queue_.head(), *wait, holders);
    EXPECT_TRUE(wait->preempts || plan.victims.empty());
    stage_.capacity.SetLeaving({plan.leaving.begin(), plan.leaving.end()});
    queue_.Refresh(stage_.capacity);
    for (const Victim& victim : plan.victims) {
      Job& job = jobs_.at(victim.job);
      EXPECT_LT(job.wait.standing.priority, priority);
      (victim.workers == 0 ? stopped_ : shrunk_) += 1;
      job.stops = victim.workers == 0;
      if (!job.stops) job.allowed = victim.workers;
      if (!job.stops) job.by = queue_.head();
      for (const auto& [rank, pod] : job.pods)
        if (job.stops || rank >= job.allowed)
          ending_.emplace(now_ + 1 + static_cast<int64_t>(rng_.Below(4)), std::pair(victim.job, rank));
    }
  }

  // A pod of a victim ends.
  void End(const std::string& name, int32_t rank) {
    Job& job = jobs_.at(name);
    const auto pod = job.pods.find(rank);
    if (pod == job.pods.end() || (!job.stops && rank < job.allowed)) return;
    stage_.capacity.Unreserve(pod->second);
    job.pods.erase(pod);
    if (!job.stops || !job.pods.empty()) return;
    job.stops = job.runs = false;
    job.by.clear();
    job.allowed = job.wait.pods;
  }

  SplitMix64 rng_;
  Stage stage_;
  RoomQueue queue_;
  const std::vector<Capacity::Shape> shapes_ = {ShapeOf(1), ShapeOf(2), ShapeOf(4), ShapeOf(8)};
  std::map<std::string, Job> jobs_;
  std::multimap<int64_t, std::pair<std::string, int32_t>> ending_;
  int64_t now_ = 0;
  int64_t done_ = 0;
  int shrunk_ = 0;
  int stopped_ = 0;
};

// No deadlock, no livelock, no starvation: when jobs have stopped to come, all of them end.
TEST(Preemption, EveryJobEnds) {
  int shrunk = 0;
  int stopped = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    PreemptingCluster cluster(seed);
    for (int i = 0; i < 100; ++i) cluster.Step(true);
    int more = 0;
    for (; more < 3000 && cluster.open() > 0; ++more) cluster.Step(false);
    ASSERT_EQ(cluster.open(), 0u) << "seed " << seed;
    shrunk += cluster.shrunk();
    stopped += cluster.stopped();
  }
  EXPECT_GT(shrunk, 100);
  EXPECT_GT(stopped, 100);
}

TEST(Preemption, TheClaimPrefersRoomThatBecomesFreeSoon) {
  Stage cluster(3);
  cluster.Runs("a", 0, 1, 1, {0});
  cluster.Runs("b", 0, 1, 1, {1});
  cluster.Runs("c", 0, 1, 1, {2});
  RoomQueue queue;
  queue.Set("head", {ShapeOf(8), 1, {}, {}}, cluster.capacity);
  cluster.capacity.SetLeaving({"c-0"});
  queue.Refresh(cluster.capacity);
  cluster.capacity.RemovePod("c-0");
  EXPECT_EQ(cluster.capacity.RoomFor(ShapeOf(1), 8), 0) << "n2 was claimed before its pod ended";
  cluster.capacity.RemovePod("a-0");
  EXPECT_EQ(cluster.capacity.RoomFor(ShapeOf(1), 100), 8) << "n0 is not claimed any more";
}

// ---- the holder

TEST(Preemption, AHolderKnowsWhichPodsLeave) {
  Observed o = RunningWorld(4);
  o.job.min = 2;
  o.pods[3].delete_by = kT0 + seconds(5);
  RoomHolder holder = HolderOf("ml/job", "ml/", o.job, o.status.ledger, o.pods);
  EXPECT_EQ(holder.workers, 4);
  EXPECT_EQ(holder.least, 2);
  EXPECT_EQ(holder.staying.size(), 3u);
  EXPECT_EQ(holder.leaving, (std::vector<std::string>{"ml/job-1-3"}));
  EXPECT_EQ(holder.lost, 0) << "it can do with two";
  o.job.min = 4;
  EXPECT_EQ(HolderOf("ml/job", "ml/", o.job, o.status.ledger, o.pods).lost, 1);
  o.job.min = 2;
  o.status.ledger.preemption = Preemption{"ml/big", "uid-big", 9, 2};
  o.job.allowed = AllowedWorkers(o.status.ledger);
  holder = HolderOf("ml/job", "ml/", o.job, o.status.ledger, o.pods);
  EXPECT_EQ(holder.workers, 2);
  EXPECT_EQ(holder.wanted, 4);
  EXPECT_EQ(holder.leaving, (std::vector<std::string>{"ml/job-1-2", "ml/job-1-3"}));
  o.status.ledger.stop_since = kT0;
  EXPECT_EQ(HolderOf("ml/job", "ml/", o.job, o.status.ledger, o.pods).leaving.size(), 4u);
  Observed other = RunningWorld(4, false);
  EXPECT_EQ(HolderOf("ml/job", "ml/", other.job, other.status.ledger, other.pods).least, 4)
      << "its framework restarts to change its size";
}

// ---- the victim's decisions

const Preemption kAsk = {"ml/big", "uid-big", 9, 2};

Observed AsWritten(Observed o, const Decision& decision) {
  o.status = StatusOf(decision)->status;
  o.job.allowed = AllowedWorkers(o.status.ledger);
  return o;
}

TEST(Preemption, AVictimShrinksAndGrowsAgain) {
  Observed o = RunningWorld(4);
  o.preempt = kAsk;
  o.preemptor_waits = true;
  Decision decision = Decide(o, kT0 + seconds(1));
  ASSERT_NE(StatusOf(decision), nullptr) << "it is written first";
  EXPECT_EQ(StatusOf(decision)->status.ledger.preemption, kAsk);
  const std::vector<Event> events = {
      {false, "Preempted", "ml/big (priority 9) needs room: from 4 to 2 workers"},
      {false, "Preempting", "makes room: from 4 to 2 workers", "ml/big"}};
  EXPECT_EQ(decision.events, events);
  const Condition& condition = StatusOf(decision)->status.display.Of(ConditionType::kPreempted);
  EXPECT_EQ(condition.truth, Truth::kTrue);
  EXPECT_EQ(condition.reason, Reason::kPreemptedToFewer);
  EXPECT_EQ(condition.message, "ml/big (priority 9) needs room: 2 of 4 workers stay");

  o = AsWritten(o, decision);
  decision = Decide(o, kT0 + seconds(2));
  int deleted = 0;
  for (const Action& action : decision.actions) {
    if (const auto* order = std::get_if<SetGang>(&action)) {
      EXPECT_EQ(order->target, 2);
    }
    if (const auto* remove = std::get_if<DeletePod>(&action)) {
      EXPECT_EQ(remove->grace, o.job.grace) << "politely";
      deleted += 1;
    }
  }
  EXPECT_EQ(deleted, 2) << ToString(decision);

  o.preemptor_waits = false;
  o.preempt.reset();
  decision = Decide(o, kT0 + seconds(3));
  ASSERT_NE(StatusOf(decision), nullptr);
  EXPECT_FALSE(StatusOf(decision)->status.ledger.preemption);
  EXPECT_EQ(decision.events[0].reason, "PreemptionEnded");
  EXPECT_EQ(AsWritten(o, decision).job.Target(), 4);
}

TEST(Preemption, AWholeVictimStopsWithACheckpointAndWaitsInTheQueue) {
  Observed o = RunningWorld(2);
  o.preempt = kAsk;
  o.preempt->workers = 0;
  o.preemptor_waits = true;
  Decision decision = Decide(o, kT0 + seconds(1));
  ASSERT_NE(StatusOf(decision), nullptr);
  EXPECT_EQ(StatusOf(decision)->status.ledger.stop_since, kT0 + seconds(1));
  EXPECT_EQ(StatusOf(decision)->status.display.Of(ConditionType::kPreempted).reason, Reason::kPreemptedWhole);
  o = AsWritten(o, decision);
  decision = Decide(o, kT0 + seconds(2));
  const auto* order = decision.actions.empty() ? nullptr : std::get_if<SetGang>(&decision.actions.front());
  ASSERT_NE(order, nullptr) << "the coordinator is asked for a checkpoint: " << ToString(decision);
  EXPECT_TRUE(order->stop);
  o.order = *order;
  o.report->phase = rendezvous::GangPhase::kStopped;
  o.pods.clear();
  o = AsWritten(o, Decide(o, kT0 + seconds(3)));
  EXPECT_TRUE(o.status.ledger.suspended);
  // It resumes by itself, even while the other job still waits: in its place of the queue.
  o = AsWritten(o, Decide(o, kT0 + seconds(4)));
  EXPECT_FALSE(o.status.ledger.suspended);
  EXPECT_EQ(o.status.ledger.attempt, 2);
  EXPECT_EQ(o.status.display.Of(ConditionType::kPreempted).truth, Truth::kTrue);
  for (int32_t rank = 0; rank < 2; ++rank) o.pods.push_back(MakePod(2, rank));
  o.prepared = PrepareGang{2, 2, 1};
  o.order = SetGang{2, 1, 8, 2, false};
  o.preempt.reset();
  o = AsWritten(o, Decide(o, kT0 + seconds(9)));
  EXPECT_FALSE(o.status.ledger.preemption) << "it has its nodes again";
}

TEST(Preemption, AJobThatItsUserSuspendsWaitsForItsUser) {
  Observed o = RunningWorld(2);
  o.preempt = kAsk;
  o.preempt->workers = 0;
  o.job.suspend = true;
  Decision decision = Decide(o, kT0 + seconds(1));
  EXPECT_EQ(decision.reason, "stop decided");
  EXPECT_FALSE(StatusOf(decision)->status.ledger.preemption);
}

TEST(Preemption, AJobAsksOnlyWhenItKnowsWhatItNeeds) {
  Observed o = RunningWorld(3);
  EXPECT_FALSE(MayPreempt(o));
  o.job.preempt = true;
  EXPECT_TRUE(MayPreempt(o));
  o.pods[1].phase = PodPhase::kFailed;
  EXPECT_FALSE(MayPreempt(o)) << "the pod will be created again";
  o.pods[1] = MakePod(1, 1);
  o.pods[1].delete_by = kT0;
  EXPECT_FALSE(MayPreempt(o));
  o.pods[1] = MakePod(7, 1);
  EXPECT_FALSE(MayPreempt(o)) << "a pod of another attempt";
}

TEST(Preemption, TheHeadSaysWhoMakesRoom) {
  Observed o = NewWorld(2);
  o.provider = GangProvider::kGate;
  o.status.ledger.attempt = 1;
  o.status.ledger.attempt_since = kT0;
  o.status.ledger.gang_size = 2;
  o.prepared = PrepareGang{1, 2, 1};
  o.order = SetGang{1, 1, 8, 2, false};
  o.fit.room = 0;
  o.fit.missing = "needs 8 x nvidia.com/gpu on 2 nodes; 0 nodes have room";
  o.fit.preempts = "ml/small (4 to 2 workers)";
  const Decision decision = Decide(o, kT0 + seconds(1));
  ASSERT_NE(StatusOf(decision), nullptr) << ToString(decision);
  const Condition& scheduled = StatusOf(decision)->status.display.Of(ConditionType::kScheduled);
  EXPECT_EQ(scheduled.reason, Reason::kPreempting);
  EXPECT_EQ(scheduled.message, o.fit.missing + "; preempts ml/small (4 to 2 workers)");
}

}  // namespace
}  // namespace ringmaster::core
