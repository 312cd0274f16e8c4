// SPDX-License-Identifier: Apache-2.0

// Workers that fall silent, perhaps because their nodes are lost.
#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

constexpr Time kSilent = kT0 + kSilentGuard;

// Three workers on nodes of their own, all of them watched; the last one falls silent.
Observed SilentWorld() {
  Observed o = RunningWorld(3);
  for (Pod& pod : o.pods) pod.node = "gpu-" + std::to_string(pod.rank);
  o.not_ready_nodes.emplace();
  o.report->silent_pods = {"job-1-2"};
  o.report->live_pods.pop_back();
  return o;
}

// The same, counted, removed and made again elsewhere.
Observed Replaced() {
  Observed o = SilentWorld();
  Settle(o, kSilent);
  o.report->silent_pods.clear();
  o.report->live_pods.emplace_back("job-1-2");
  o.pods.back().node = "gpu-9";
  return o;
}

TEST(Suspects, ASilentWorkerIsReplacedElsewhereAndNotYetCharged) {
  Observed o = SilentWorld();
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.suspects, (std::vector<Suspect>{{"job-1-2", "gpu-2", kSilent, true}}));
  Obey(o, Decide(o, kSilent), kSilent);
  Obey(o, Decide(o, kSilent), kSilent);  // it is forced out
  const auto created = All<CreatePod>(Decide(o, kSilent));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].avoided_nodes, std::vector<std::string>{"gpu-2"});
  EXPECT_TRUE(created[0].excluded_nodes.empty());
}

TEST(Suspects, TheLossOfTheNodeAcquits) {
  Observed o = Replaced();
  const Time told = kSilent + seconds(50);
  o.not_ready_nodes = {"gpu-2"};
  const Decision decision = Decide(o, told);
  const Ledger ledger = Written(decision);
  EXPECT_TRUE(ledger.suspects.empty());
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.excluded,
            (std::vector<ExcludedNode>{{"gpu-2", "NodeUnreachable", told + o.job.node_exclusion}}));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.last_failure->rule, "default: node lost");
  ASSERT_EQ(decision.events.size(), 1U);
  EXPECT_EQ(decision.events[0].reason, "NodeUnreachable");
  Obey(o, decision, told);
  Settle(o, told + 10 * kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
}

TEST(Suspects, AWorkerOnAWellNodeIsChargedInTheEnd) {
  Observed o = Replaced();
  const Time judged = kSilent + kSuspicionPeriod;
  EXPECT_EQ(Settle(o, judged - seconds(1)).requeue_at, judged);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  Settle(o, judged);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
  EXPECT_TRUE(o.status.ledger.suspects.empty());
  EXPECT_EQ(o.status.ledger.last_failure->cause, Cause::kSilent);
  EXPECT_TRUE(o.status.ledger.excluded.empty());
}

TEST(Suspects, TheBudgetEndsTheJobThen) {
  Observed o = SilentWorld();
  o.job.max_restarts = 0;
  Settle(o, kSilent);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  EXPECT_EQ(Written(Decide(o, kSilent + kSuspicionPeriod)).outcome_reason, Reason::kRestartBudgetSpent);
}

TEST(Suspects, ThoseWhoFallSilentTogetherAreOneRestart) {
  Observed o = SilentWorld();
  o.report->silent_pods = {"job-1-1", "job-1-2"};
  Settle(o, kSilent);
  o.report->silent_pods.clear();
  EXPECT_EQ(o.status.ledger.suspects.size(), 2U);
  // One node is lost, the other is not.
  o.not_ready_nodes = {"gpu-1"};
  Settle(o, kSilent + seconds(50));
  EXPECT_EQ(o.status.ledger.suspects.size(), 1U);
  Settle(o, kSilent + kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
}

TEST(Suspects, WhatIsChargedTogetherWithAnotherFailureIsNotChargedAgain) {
  Observed o = SilentWorld();
  o.pods[0].phase = PodPhase::kFailed;
  o.pods[0].exit_code = 1;
  Settle(o, kSilent);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  o.report->silent_pods.clear();
  Settle(o, kSilent + kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_TRUE(o.status.ledger.suspects.empty());
}

TEST(Suspects, TheReplacementsOwnFailureIsItsOwn) {
  Observed o = Replaced();
  o.pods.back().phase = PodPhase::kFailed;
  o.pods.back().exit_code = 1;
  const Time failed = kSilent + seconds(20);
  Settle(o, failed);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  o.not_ready_nodes = {"gpu-2"};
  Settle(o, failed + seconds(1));
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.status.ledger.last_failure->exit_code, 1);
}

TEST(Suspects, SilenceOnANodeKnownToBeSickIsItsLoss) {
  Observed o = SilentWorld();
  o.not_ready_nodes = {"gpu-2"};
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_TRUE(ledger.suspects.empty());
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-2");
}

TEST(Suspects, RulesJudgeTheLossOfTheNode) {
  Rule rule;
  rule.node_unreachable = true;
  Observed o = Replaced();
  o.job.rules = {rule};
  o.not_ready_nodes = {"gpu-2"};
  Ledger ledger = Written(Decide(o, kSilent + seconds(50)));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_TRUE(ledger.excluded.empty());
  o.job.rules[0].action = RuleAction::kFail;
  EXPECT_EQ(Written(Decide(o, kSilent + seconds(50))).outcome_reason, Reason::kRuleMatched);
}

TEST(Suspects, WhereNobodyWatchesNodesAWorkerIsChargedAtOnce) {
  Observed o = SilentWorld();
  o.not_ready_nodes.reset();
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_TRUE(ledger.suspects.empty());
}

// ---- workers that nobody keeps going when a peer is lost

// Three of them on nodes of their own; the first has ended with an error.
Observed FailedPeerWorld() {
  Observed o = RunningWorld(3, false);
  for (Pod& pod : o.pods) pod.node = "gpu-" + std::to_string(pod.rank);
  o.not_ready_nodes.emplace();
  o.pods[0].phase = PodPhase::kFailed;
  o.pods[0].exit_code = 1;
  o.pods[0].ended = kT0;
  return o;
}

// The same, drained but for the last pod, whose node does not say that it has gone.
Observed WaitsForLastPod() {
  Observed o = FailedPeerWorld();
  Obey(o, Decide(o, kT0), kT0);
  o.pods.erase(o.pods.begin(), o.pods.begin() + 2);
  o.pods[0].delete_by = kT0 + seconds(20);
  return o;
}

TEST(Suspects, AFailureAmongPeersIsChargedWhenAllNodesHaveToldTheEnd) {
  Observed o = FailedPeerWorld();
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.attempt, 2);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.suspects, (std::vector<Suspect>{{"job-1-0", "", kT0, true}}));
  Settle(o, kT0 + seconds(1));
  EXPECT_EQ(o.pods.size(), 3U);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_TRUE(o.status.ledger.suspects.empty());
  EXPECT_EQ(o.status.ledger.last_failure->exit_code, 1);
}

TEST(Suspects, ItIsChargedAtOnceWhenAllOthersHaveEndedToo) {
  Observed o = FailedPeerWorld();
  for (Pod& pod : o.pods) {
    pod.phase = PodPhase::kFailed;
    pod.exit_code = 1;
  }
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_TRUE(ledger.suspects.empty());
}

TEST(Suspects, ALostPeerThatShowsInTheDrainAcquits) {
  Observed o = WaitsForLastPod();
  const Time told = kT0 + seconds(45);
  o.not_ready_nodes = {"gpu-2"};
  const Decision decision = Decide(o, told);
  const Ledger ledger = Written(decision);
  EXPECT_TRUE(ledger.suspects.empty());
  EXPECT_EQ(ledger.restarts.charged, 0);
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-2");
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.last_failure->pod, "job-1-2");
  EXPECT_EQ(ledger.last_failure->attempt, 1);
  Settle(o, told + 10 * kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
}

TEST(Suspects, AnOldPodThatOverstaysIsNotForcedWhileItsNodeMayBeFoundLost) {
  Observed o = WaitsForLastPod();
  const Time overstayed = *o.pods[0].delete_by + kOverstayMargin;
  EXPECT_TRUE(All<DeletePod>(Settle(o, overstayed)).empty());
  EXPECT_EQ(o.pods.size(), 1U);
  // Nobody says so: then it was the worker's own failure.
  Settle(o, kT0 + kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.pods.size(), 3U);
}

TEST(Suspects, TheLastRestartOfTheBudgetWaitsForWordOfTheOtherNodes) {
  Observed o = FailedPeerWorld();
  o.job.max_restarts = 0;
  const Decision waits = Settle(o, kT0 + seconds(1));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  EXPECT_EQ(o.status.ledger.attempt, 1);
  EXPECT_LE(waits.requeue_at, kT0 + kSuspicionPeriod);
  EXPECT_EQ(Written(Decide(o, kT0 + kSuspicionPeriod)).outcome_reason, Reason::kRestartBudgetSpent);
  Observed lost = o;
  lost.not_ready_nodes = {"gpu-2"};
  Settle(lost, kT0 + seconds(45));
  EXPECT_EQ(lost.status.ledger.outcome, Outcome::kNone);
  EXPECT_EQ(lost.status.ledger.restarts.charged, 0);
  for (Pod& pod : o.pods) pod.phase = PodPhase::kFailed;
  EXPECT_EQ(Written(Decide(o, kT0 + seconds(1))).outcome_reason, Reason::kRestartBudgetSpent);
}

// It may have been told to keep off a node, and there was no room anywhere else in the end.
TEST(Suspects, AReplacementWithoutANodeIsMadeAnewWhenTheSuspicionEnds) {
  Observed o = Replaced();
  Pod& waits = o.pods.back();
  waits.node.clear();
  waits.phase = PodPhase::kPending;
  waits.waiting_reason = kUnschedulable;
  const Ledger ledger = Written(Decide(o, kSilent + kSuspicionPeriod));
  EXPECT_NE(std::find(ledger.counted.begin(), ledger.counted.end(), waits.uid), ledger.counted.end());
  Obey(o, Decide(o, kSilent + kSuspicionPeriod), kSilent + kSuspicionPeriod);
  Settle(o, kSilent + kSuspicionPeriod);
  EXPECT_EQ(o.pods.size(), 3U);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

}  // namespace
}  // namespace ringmaster::core
