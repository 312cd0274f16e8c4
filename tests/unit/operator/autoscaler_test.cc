// SPDX-License-Identifier: Apache-2.0

// Gangs that wait for nodes and hold none: an autoscaler may add some, or their scheduler places gangs in one
// step.
#include <gtest/gtest.h>

#include "operator/core/decide/decide_steps.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

// Returns a gang whose pods were created for an autoscaler and have been refused by the scheduler.
Observed AutoscaledWorld(int32_t size) {
  Observed o = NewWorld(size);
  o.job.in_place = false;
  o.job.autoscaler = true;
  o.provider = GangProvider::kGate;
  o.fit = {0, "nothing is there"};
  for (int i = 0; i < 2; ++i) Obey(o, Decide(o, kT0), kT0);
  for (const CreatePod& create : All<CreatePod>(Decide(o, kT0))) EXPECT_FALSE(create.gated);
  Obey(o, Decide(o, kT0), kT0);
  for (Pod& pod : o.pods) {
    pod.phase = PodPhase::kPending;
    pod.node.clear();
    pod.waiting_reason = kUnschedulable;
  }
  EXPECT_EQ(o.pods.size(), static_cast<size_t>(size));
  return o;
}

void GiveNode(Pod& pod, Time now) {
  pod.node = "new-node";
  pod.waiting_reason.clear();
  pod.phase = PodPhase::kRunning;
  pod.placed = pod.started = now;
}

// The pods hold nothing, and without them the autoscaler would add none.
TEST(Gang, WaitsForTheNodesOfAnAutoscaler) {
  Observed o = AutoscaledWorld(2);
  const std::vector<Pod> pods = o.pods;
  for (Time now = kT0; now < kT0 + 11 * o.job.gang_timeout; now += o.job.gang_timeout / 2) Settle(o, now);
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
  EXPECT_EQ(o.status.ledger.attempt, 1);
  EXPECT_EQ(o.pods, pods);
  EXPECT_EQ(o.status.display.Of(ConditionType::kScheduled).reason, Reason::kUnschedulable);
  const Time late = kT0 + 11 * o.job.gang_timeout;
  for (Pod& pod : o.pods) GiveNode(pod, late);
  Settle(o, late);
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

// They may exclude nodes that are good again, which nothing shows.
TEST(Gang, WithAnAutoscalerIsCreatedAgainAfterALongTime) {
  Observed o = AutoscaledWorld(2);
  const Time late = kT0 + kLimitsForNewNodes * o.job.gang_timeout;
  EXPECT_EQ(Settle(o, late - seconds(1)).requeue_at, late);
  Settle(o, late);
  EXPECT_EQ(o.status.ledger.withdrawals, 1);
}

TEST(Gang, WithAnAutoscalerTheLimitStartsAgainWithEachNode) {
  Observed o = AutoscaledWorld(3);
  const Time first = kT0 + 3 * o.job.gang_timeout;
  Settle(o, first);
  GiveNode(o.pods[0], first);
  Settle(o, first + o.job.gang_timeout / 2);
  const Time second = first + o.job.gang_timeout - seconds(1);
  GiveNode(o.pods[1], second);
  Settle(o, second + o.job.gang_timeout - seconds(1));
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
  // It holds two nodes, and no more come.
  Settle(o, second + o.job.gang_timeout);
  EXPECT_EQ(o.status.ledger.withdrawals, 1);
}

TEST(Gang, WithAnAutoscalerATopologyOrAnotherSchedulerIsChosenAgain) {
  Observed pinned = AutoscaledWorld(2);
  pinned.job.topology_required = "rack";
  Settle(pinned, kT0 + pinned.job.gang_timeout);
  EXPECT_EQ(pinned.status.ledger.withdrawals, 1);
  Observed ignored = AutoscaledWorld(2);
  ignored.provider = GangProvider::kScheduler;
  for (Pod& pod : ignored.pods) {
    pod.waiting_reason.clear();
    pod.awaits_scheduler = "volcano";
  }
  Settle(ignored, kT0 + ignored.job.gang_timeout);
  EXPECT_EQ(ignored.status.ledger.withdrawals, 1);
}

// Returns a gang of a scheduler that places gangs in one step, and finds no nodes for this one.
Observed WaitingAtOnce(int32_t size) {
  Observed o = AutoscaledWorld(size);
  o.job.autoscaler = false;
  o.provider = GangProvider::kScheduler;
  o.all_at_once = true;
  return o;
}

// With many of them, to create them again would be most of what the API server has to do.
TEST(Gang, OfASchedulerThatHoldsNothingIsNotCreatedAgainAndAgain) {
  Observed o = WaitingAtOnce(8);
  Settle(o, kT0 + kSettlePeriod);
  const std::vector<Pod> pods = o.pods;
  for (Time now = kT0 + seconds(60); now < kT0 + 12 * o.job.gang_timeout; now += o.job.gang_timeout / 2)
    EXPECT_TRUE(Decide(o, now).actions.empty()) << ToString(Decide(o, now));
  EXPECT_EQ(o.pods, pods);
  const Time late = kT0 + kLimitsForNewNodes * o.job.gang_timeout;
  EXPECT_EQ(Settle(o, late - seconds(1)).requeue_at, late);
  Settle(o, late);
  EXPECT_EQ(o.status.ledger.withdrawals, 1) << "its pods may exclude nodes that are good again";
}

// The scheduler binds the pods one after the other.
TEST(Gang, OfASchedulerThatWaitedLongIsNotWithdrawnWhenItsNodesCome) {
  Observed o = WaitingAtOnce(3);
  const Time late = kT0 + 5 * o.job.gang_timeout;
  Settle(o, late);
  GiveNode(o.pods[0], late);
  Settle(o, late + milliseconds(1));
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
  Observed torn = o;
  Settle(torn, late + o.job.gang_timeout);
  EXPECT_EQ(torn.status.ledger.withdrawals, 1) << "the others get none";
  for (Pod& pod : o.pods) GiveNode(pod, late + milliseconds(2));
  Settle(o, late + seconds(1));
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Gang, OfASchedulerIsWithdrawnWhenItHoldsNodesOrIsIncomplete) {
  const auto withdrawn = [](Observed o) {
    Settle(o, kT0 + o.job.gang_timeout);
    return o.status.ledger.withdrawals == 1;
  };
  EXPECT_FALSE(withdrawn(WaitingAtOnce(3)));
  Observed torn = WaitingAtOnce(3);
  GiveNode(torn.pods[0], kT0);
  EXPECT_TRUE(withdrawn(torn));
  Observed kept = WaitingAtOnce(3);
  kept.all_at_once = false;
  EXPECT_TRUE(withdrawn(kept)) << "nodes may be kept for a part of it";
  Observed incomplete = WaitingAtOnce(3);
  incomplete.pods.pop_back();
  incomplete.refusal = Refusal{RefusalKind::kQuota, "exceeded quota", kT0, kT0 + seconds(100'000)};
  EXPECT_TRUE(withdrawn(incomplete)) << "it holds quota";
  Observed pinned = WaitingAtOnce(3);
  pinned.job.topology_required = "rack";
  EXPECT_TRUE(withdrawn(pinned));
}

}  // namespace
}  // namespace ringmaster::core
