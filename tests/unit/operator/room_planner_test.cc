// SPDX-License-Identifier: Apache-2.0

#include "operator/core/planner/room_planner.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

using Jobs = std::set<std::string>;

const char* const kResource = "nvidia.com/gpu";

// Nodes with one GPU each, and jobs with one GPU per worker.
class RoomPlannerTest : public testing::Test {
 protected:
  void AddNodes(int count) {
    for (int i = 0; i < count; ++i) {
      NodeFacts node;
      node.name = "n" + std::to_string(i);
      node.allocatable = {{kResource, 1}, {"pods", 100}};
      planner_.capacity().SetNode(std::move(node));
    }
  }

  // A job whose `workers` wait for room.
  Observed Waiting(const std::string& name, int32_t workers, bool preempt = false) {
    Observed o = NewWorld(workers);
    o.job.name = name;
    o.job.uid = "uid-" + name;
    o.job.min = workers;
    o.job.preempt = preempt;
    o.provider = GangProvider::kGate;
    o.status.ledger.attempt = 1;
    Observed begun = Begun(o, kT0);
    planner_.SetJob("ml/" + name, begun.job.uid, MayWaitForVictims(begun.job, begun.status), begun.status);
    return begun;
  }

  RoomPlanner::Gang GangOf(const Observed& o, int32_t priority = 0) const {
    RoomPlanner::Gang gang;
    gang.kinds.push_back({WaitingRanks(o), shape_});
    gang.priority = priority;
    return gang;
  }

  RoomPlanner::Turn Update(const Observed& o, int32_t priority = 0, Time now = kT0) {
    return planner_.Update("ml/" + o.job.name, o.job.uid, GangOf(o, priority), o, now);
  }

  bool Reserve(const Observed& o) {
    return planner_.Reserve("ml/" + o.job.name, o.job.uid, 1, GangOf(o).kinds, {}).reserved;
  }

  // A holder of one GPU on each of these nodes, which may be preempted.
  RoomHolder Running(const Observed& o, const std::vector<std::string>& nodes) {
    RoomHolder holder;
    holder.job = "ml/" + o.job.name;
    holder.preemptible = true;
    holder.workers = holder.least = holder.wanted = static_cast<int32_t>(nodes.size());
    for (const std::string& node : nodes) {
      const auto rank = static_cast<int32_t>(holder.staying.size());
      holder.staying.push_back({rank, RoomPlanner::PlaceOf(holder.job, 1, rank)});
      planner_.capacity().SetPod(holder.staying.back().pod, {{kResource, 1}}, node);
    }
    return holder;
  }

  // Plans with these holders, as of all jobs.
  Jobs Plan(const std::vector<RoomHolder>& holders) {
    std::map<std::string, std::optional<RoomHolder>> read;
    for (const std::string& job : planner_.JobsToRead([&] {
           std::vector<std::string> all;
           for (const RoomHolder& holder : holders) all.push_back(holder.job);
           return all;
         })) {
      read[job] = std::nullopt;
      for (const RoomHolder& holder : holders)
        if (holder.job == job) read[job] = holder;
    }
    return planner_.Plan(std::move(read));
  }

  RoomPlanner planner_;
  const Capacity::Shape shape_ = [] {
    PodShape shape;
    shape.requests[kResource] = 1;
    return std::make_shared<const PodShape>(std::move(shape));
  }();
};

TEST_F(RoomPlannerTest, ALookChangesNoTurn) {
  AddNodes(2);
  const Observed large = Waiting("large", 3), small = Waiting("small", 2);
  EXPECT_EQ(planner_.FitOf("ml/large", GangOf(large), large).room, 2);
  EXPECT_EQ(planner_.queue().size(), 0u);
  AddNodes(3);
  const Observed busy = Waiting("busy", 2);
  Running(busy, {"n0"});
  EXPECT_EQ(Update(large, 1).fit.room, 2);
  EXPECT_EQ(planner_.queue().head(), "ml/large");
  const Fit kept = planner_.FitOf("ml/small", GangOf(small), small);
  EXPECT_EQ(kept.room, 0);
  EXPECT_EQ(kept.missing, "the room is kept for ml/large, which comes first");
  EXPECT_EQ(Update(small).fit, kept);
  EXPECT_EQ(planner_.queue().size(), 2u);
}

TEST_F(RoomPlannerTest, AGangThatDoesNotTakeItsRoomLosesItsTurn) {
  AddNodes(2);
  const Observed slow = Waiting("slow", 2), next = Waiting("next", 2);
  EXPECT_EQ(Update(slow, 1).fit.room, 2);
  EXPECT_EQ(Update(next, 0).fit.room, 0);
  EXPECT_EQ(Update(next, 0, kT0 + kTurnLimit - milliseconds(1)).fit.room, 0);
  EXPECT_EQ(Update(next, 0, kT0 + kTurnLimit).fit.room, 2);
  EXPECT_EQ(planner_.queue().head(), "ml/next");
}

TEST_F(RoomPlannerTest, AReservationIsForAllPodsOrForNone) {
  AddNodes(3);
  const Observed first = Waiting("first", 2), second = Waiting("second", 2);
  EXPECT_TRUE(Reserve(first));
  EXPECT_EQ(planner_.FitOf("ml/first", GangOf(first), first).reserved, (std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(Reserve(second));
  EXPECT_EQ(planner_.FitOf("ml/second", GangOf(second), second).room, 1);
}

TEST_F(RoomPlannerTest, PlacesEndWithTheirAttemptAndWithTheirJob) {
  AddNodes(2);
  Observed job = Waiting("job", 2);
  const auto places = [&] { return planner_.capacity().ReservedFor("ml/job-1-0") != nullptr; };
  EXPECT_TRUE(Reserve(job));
  EXPECT_FALSE(planner_.SetJob("ml/job", job.job.uid, true, job.status));
  EXPECT_TRUE(places());
  job.status.ledger.attempt = 2;
  EXPECT_TRUE(planner_.SetJob("ml/job", job.job.uid, true, job.status));
  EXPECT_FALSE(places());
  EXPECT_FALSE(Reserve(job)) << "the attempt is over";
  job.status.ledger.attempt = 1;
  EXPECT_FALSE(planner_.SetJob("ml/job", job.job.uid, true, job.status));
  EXPECT_TRUE(Reserve(job));
  EXPECT_TRUE(planner_.SetJob("ml/job", "another uid", true, job.status));
  EXPECT_FALSE(places());
  EXPECT_FALSE(planner_.Knows("ml/job", job.job.uid));
}

TEST_F(RoomPlannerTest, AnswersAboutAJobThatIsGoneAreDropped) {
  AddNodes(1);
  const Observed gone = Waiting("gone", 2);
  planner_.RemoveJob("ml/gone");
  EXPECT_EQ(Update(gone).fit.room, 1);
  EXPECT_EQ(planner_.queue().size(), 0u);
  EXPECT_FALSE(Reserve(gone));
}

TEST_F(RoomPlannerTest, TheHeadAsksAJobOfLowerPriorityForRoom) {
  AddNodes(2);
  const Observed low = Waiting("low", 2);
  const Observed high = Waiting("high", 2, true);
  const RoomHolder holder = Running(low, {"n0", "n1"});
  EXPECT_TRUE(Update(high, 5).plan);
  EXPECT_FALSE(Update(high, 5).plan) << "nothing has changed";
  EXPECT_EQ(Plan({holder}), (Jobs{"ml/high", "ml/low"}));
  const auto request = planner_.RequestTo("ml/low", low.job.uid, 1);
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (Preemption{"ml/high", high.job.uid, 5, 0}));
  EXPECT_FALSE(planner_.RequestTo("ml/low", low.job.uid, 2)) << "it was asked of an earlier attempt";
  EXPECT_EQ(planner_.PreemptsFor("ml/high", high.job.uid), "ml/low (all workers)");
  EXPECT_EQ(Plan({holder}), Jobs());
}

TEST_F(RoomPlannerTest, AJobThatIsNotTheHeadAnyMoreReportsNoVictims) {
  AddNodes(2);
  const Observed low = Waiting("low", 2);
  const Observed high = Waiting("high", 2, true), higher = Waiting("higher", 2, true);
  const RoomHolder holder = Running(low, {"n0", "n1"});
  Update(high, 5);
  Plan({holder});
  EXPECT_TRUE(Update(higher, 6).plan);
  EXPECT_EQ(Plan({holder}), (Jobs{"ml/high", "ml/higher", "ml/low"}));
  EXPECT_EQ(planner_.PreemptsFor("ml/high", high.job.uid), "");
  EXPECT_EQ(planner_.RequestTo("ml/low", low.job.uid, 1)->by, "ml/higher");
}

TEST_F(RoomPlannerTest, ARequestEndsWithTheJobThatAsked) {
  AddNodes(2);
  Observed low = Waiting("low", 2);
  const Observed high = Waiting("high", 2, true);
  const RoomHolder holder = Running(low, {"n0", "n1"});
  Update(high, 5);
  Plan({holder});
  low.status.ledger.preemption = planner_.RequestTo("ml/low", low.job.uid, 1);
  planner_.SetJob("ml/low", low.job.uid, true, low.status);
  EXPECT_TRUE(planner_.Waits(*low.status.ledger.preemption));
  planner_.RemoveJob("ml/high");
  EXPECT_FALSE(planner_.Waits(*low.status.ledger.preemption));
  EXPECT_FALSE(planner_.RequestTo("ml/low", low.job.uid, 1));
  EXPECT_EQ(Plan({}), Jobs{"ml/low"}) << "it may grow again";
}

}  // namespace
}  // namespace ringmaster::core
