// SPDX-License-Identifier: Apache-2.0

// A gang of the operator's gate before its first pod: nothing is created until places are reserved for it.
#include <gtest/gtest.h>

#include "operator/core/decide/decide_steps.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(FirstRoom, ReservesItsPlacesBeforeItsPodsExist) {
  Observed o = NewWorld(3);
  o.job.in_place = false;
  o.provider = GangProvider::kGate;
  o.fit = {3, ""};
  Obey(o, Decide(o, kT0), kT0);
  const Decision first = Decide(o, kT0);
  ASSERT_EQ(All<ReserveRoom>(first).size(), 1U);
  EXPECT_EQ(All<ReserveRoom>(first)[0], (ReserveRoom{1, {0, 1, 2}}));
  EXPECT_TRUE(All<CreatePod>(first).empty());
  EXPECT_TRUE(All<PrepareGang>(first).empty());
  Obey(o, first, kT0);
  const Decision second = Decide(o, kT0);
  EXPECT_EQ(second.actions, (std::vector<Action>{PrepareGang{1, 3, 3}})) << ToString(second);
  Obey(o, second, kT0);
  EXPECT_EQ(o.fit.reserved.size(), 3U) << "the places stay reserved meanwhile";
  const Decision third = Decide(o, kT0);
  EXPECT_EQ(All<CreatePod>(third).size(), 3U);
  EXPECT_EQ(third.actions.size(), 3U) << ToString(third);
}

TEST(FirstRoom, NothingIsCreatedWhileItWaitsForRoom) {
  for (const bool native : {false, true}) {
    Observed o = WaitingWorld(4, 3, native);
    Settle(o, kT0 + kDisplayInterval);
    EXPECT_FALSE(o.prepared.has_value());
    EXPECT_TRUE(o.fit.reserved.empty());
    EXPECT_TRUE(o.pods.empty());
    EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForCapacity);
    // Another leader finds the same.
    o.order.reset();
    Settle(o, kT0 + kDisplayInterval);
    EXPECT_FALSE(o.prepared.has_value());
    o.fit = {4, ""};
    const Decision reserve = Decide(o, kT0 + kDisplayInterval);
    EXPECT_EQ(All<ReserveRoom>(reserve).size(), 1U) << ToString(reserve);
    EXPECT_TRUE(All<PrepareGang>(reserve).empty());
    Obey(o, reserve, kT0 + kDisplayInterval);
    const Decision prepare = Decide(o, kT0 + kDisplayInterval);
    EXPECT_EQ(prepare.actions, (std::vector<Action>{PrepareGang{1, 4, native ? 2 : 4}})) << ToString(prepare);
    Settle(o, kT0 + kDisplayInterval);
    EXPECT_TRUE(o.status.ledger.placed);
  }
}

// The first status says what it waits for.
TEST(FirstRoom, ThatWaitsCostsOneStatusWrite) {
  Observed o = NewWorld(4);
  o.job.in_place = false;
  o.status.ledger.attempt = 1;  // the default of the CRD
  o.provider = GangProvider::kGate;
  o.fit = {3, "needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room"};
  const Decision first = Decide(o, kT0);
  EXPECT_EQ(Written(first).gang_size, 4);
  Obey(o, first, kT0);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForCapacity);
  EXPECT_TRUE(Decide(o, kT0).actions.empty()) << ToString(Decide(o, kT0));
}

// Nodes were lost between the preparation and the creation.
TEST(FirstRoom, ThatIsPreparedAndLosesItsRoomGivesUpItsPlaces) {
  Observed o = WaitingWorld(4, 4);
  ASSERT_TRUE(o.prepared.has_value());
  o.fit = {3, "needs 8 x nvidia.com/gpu on 4 nodes; 3 nodes have room", {0, 1, 2}};
  EXPECT_EQ(Decide(o, kT0).actions, (std::vector<Action>{ReserveRoom{1, {}}}));
  Settle(o, kT0 + kDisplayInterval);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForCapacity);
}

// The leader ended after it had prepared the gang: the next one has no places for it.
TEST(FirstRoom, ThatAnotherLeaderPreparedReservesItsPlaces) {
  Observed o = WaitingWorld(4, 4);
  o.fit.reserved.clear();
  EXPECT_EQ(Decide(o, kT0).actions, (std::vector<Action>{ReserveRoom{1, {0, 1, 2, 3}}}));
}

// The Service selects one attempt: each pod of an older one that ends would change it.
TEST(FirstRoom, TheObjectsOfAnEarlierAttemptFollowWhileItsPodsEnd) {
  Observed o = RunningWorld(4, false);
  o.provider = GangProvider::kGate;
  o.fit = {0, "needs 8 x nvidia.com/gpu on 4 nodes; 0 nodes have room"};
  o.status.ledger.attempt = 2;
  o.status.ledger.placed = false;
  o.status.ledger.ready_since.reset();
  const Decision drain = Decide(o, kT0);
  EXPECT_EQ(drain.actions.front(), Action(PrepareGang{2, 4, 4})) << ToString(drain);
  // Of an attempt that begins when they are gone nothing is prepared.
  o.pods.clear();
  EXPECT_TRUE(All<PrepareGang>(Decide(o, kT0)).empty()) << ToString(Decide(o, kT0));
}

TEST(FirstRoom, PodsOfAnEarlierJobOfTheNameEndBeforeAnythingIsCreated) {
  Observed o = NewWorld(4);
  o.job.in_place = false;
  o.status.ledger.attempt = 1;
  o.provider = GangProvider::kGate;
  o.fit.room = 4;
  o.strays.push_back(MakePod(7, 0));
  EXPECT_TRUE(All<PrepareGang>(Decide(o, kT0)).empty());
}

// Otherwise the refusal would come only when the nodes have room.
TEST(FirstRoom, ARefusalIsFoundWhileTheGangWaits) {
  Observed o = NewWorld(4);
  o.job.in_place = false;
  o.provider = GangProvider::kGate;
  o.fit = {3, "needs 8 x nvidia.com/gpu on 4 nodes; 3 nodes have room"};
  o.untried = true;
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(Decide(o, kT0).actions, (std::vector<Action>{TryPods{1, 4}}));
  o.refusal = Refusal{RefusalKind::kPodSecurity, "violates PodSecurity", kT0, kT0 + seconds(4)};
  Settle(o, kT0 + kDisplayInterval);
  EXPECT_EQ(ConditionOf(o, ConditionType::kAdmitted).reason, Reason::kPodSecurity);
  EXPECT_EQ(Decide(o, kT0 + seconds(4)).actions, (std::vector<Action>{TryPods{1, 4}}));
  o.refusal.reset();
  o.untried = false;
  Settle(o, kT0 + seconds(4) + kDisplayInterval);
  EXPECT_FALSE(o.prepared.has_value());
  EXPECT_EQ(ConditionOf(o, ConditionType::kAdmitted).truth, Truth::kTrue);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForCapacity);
  // The next leader need not ask again, and so loses no time to a gang that comes later.
  o.untried = true;
  EXPECT_TRUE(Decide(o, kT0 + seconds(4) + kDisplayInterval).actions.empty());
  o.fit = {4, ""};
  EXPECT_EQ(All<ReserveRoom>(Decide(o, kT0 + seconds(4) + kDisplayInterval)).size(), 1U);
}

}  // namespace
}  // namespace ringmaster::core
