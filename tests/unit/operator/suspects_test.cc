// SPDX-License-Identifier: Apache-2.0

// Failures that a lost node may explain.
#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

constexpr Time kSilent = kT0 + kSilentGuard;

// Three workers on separate, watched nodes; the last one is unresponsive.
Observed SilentWorld() {
  Observed o = RunningWorld(3);
  for (Pod& pod : o.pods) pod.node = "gpu-" + std::to_string(pod.rank);
  o.not_ready_nodes.emplace();
  o.report->silent_pods = {"job-1-2"};
  o.report->live_pods.pop_back();
  return o;
}

// The same after the worker was counted, removed and recreated elsewhere.
Observed Replaced() {
  Observed o = SilentWorld();
  Settle(o, kSilent);
  o.report->silent_pods.clear();
  o.report->live_pods.emplace_back("job-1-2");
  o.pods.back().node = "gpu-9";
  return o;
}

TEST(Suspects, AnUnresponsiveWorkerIsReplacedElsewhereAndNotYetCharged) {
  Observed o = SilentWorld();
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.suspects, (std::vector<Suspect>{{"job-1-2", "gpu-2", kSilent, true}}));
  Obey(o, Decide(o, kSilent), kSilent);
  Obey(o, Decide(o, kSilent), kSilent);  // force deletion
  const auto created = All<CreatePod>(Decide(o, kSilent));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].avoided_nodes, std::vector<std::string>{"gpu-2"});
  EXPECT_TRUE(created[0].excluded_nodes.empty());
}

TEST(Suspects, ANodeThatStartedAgainExplainsTheFailure) {
  Observed o = Replaced();
  o.restarted_nodes = {{"gpu-2", kSilent - seconds(1)}};
  EXPECT_EQ(StatusOf(Decide(o, kSilent + seconds(20))), nullptr) << "it started before the silence";
  o.restarted_nodes = {{"gpu-2", kSilent + seconds(20)}};
  const Ledger ledger = Written(Decide(o, kSilent + seconds(20)));
  EXPECT_TRUE(ledger.suspects.empty());
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.last_failure->cause, Cause::kLostByNode);
}

TEST(Suspects, ALostNodeExplainsTheFailure) {
  Observed o = Replaced();
  const Time reported = kSilent + seconds(50);
  o.not_ready_nodes = {"gpu-2"};
  const Decision decision = Decide(o, reported);
  const Ledger ledger = Written(decision);
  EXPECT_TRUE(ledger.suspects.empty());
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.excluded,
            (std::vector<ExcludedNode>{{"gpu-2", "NodeUnreachable", reported + o.job.node_exclusion,
                                        NodeEffect::kPreferNoSchedule}}));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.last_failure->rule, "default: node lost");
  ASSERT_EQ(decision.events.size(), 1U);
  EXPECT_EQ(decision.events[0].reason, "NodeUnreachable");
  Obey(o, decision, reported);
  Settle(o, reported + 10 * kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
}

TEST(Suspects, AWorkerOnAReadyNodeIsChargedAfterTheSuspicionPeriod) {
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

TEST(Suspects, ASpentBudgetFailsTheJobWhenTheNodeIsReady) {
  Observed o = SilentWorld();
  o.job.max_restarts = 0;
  Settle(o, kSilent);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  EXPECT_EQ(Written(Decide(o, kSilent + kSuspicionPeriod)).outcome_reason, Reason::kRestartBudgetSpent);
}

TEST(Suspects, WorkersThatBecomeUnresponsiveTogetherAreOneRestart) {
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

TEST(Suspects, ASuspectThatIsPartOfAChargedRestartIsNotChargedAgain) {
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

TEST(Suspects, AFailureOfTheReplacementIsCountedSeparately) {
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

TEST(Suspects, AnUnresponsiveWorkerOnANotReadyNodeIsLostWithIt) {
  Observed o = SilentWorld();
  o.not_ready_nodes = {"gpu-2"};
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_TRUE(ledger.suspects.empty());
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-2");
}

TEST(Suspects, RulesApplyToTheLossOfTheNode) {
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

TEST(Suspects, WithoutNodeStatusAWorkerIsChargedAtOnce) {
  Observed o = SilentWorld();
  o.not_ready_nodes.reset();
  const Ledger ledger = Written(Decide(o, kSilent));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_TRUE(ledger.suspects.empty());
}

// ---- workers that end when a peer is lost

// Three such workers on separate nodes; the first has ended with an error.
Observed FailedPeerWorld() {
  Observed o = RunningWorld(3, false);
  for (Pod& pod : o.pods) pod.node = "gpu-" + std::to_string(pod.rank);
  o.not_ready_nodes.emplace();
  o.pods[0].phase = PodPhase::kFailed;
  o.pods[0].exit_code = 1;
  o.pods[0].ended = kT0;
  return o;
}

// The same, drained except for the last pod, whose node does not report its end.
Observed WaitsForLastPod() {
  Observed o = FailedPeerWorld();
  Obey(o, Decide(o, kT0), kT0);
  o.pods.erase(o.pods.begin(), o.pods.begin() + 2);
  o.pods[0].delete_by = kT0 + seconds(20);
  return o;
}

TEST(Suspects, AFailureAmongPeersIsChargedWhenTheDrainIsComplete) {
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

TEST(Suspects, AFailureIsChargedAtOnceWhenAllPeersHaveEnded) {
  Observed o = FailedPeerWorld();
  for (Pod& pod : o.pods) {
    pod.phase = PodPhase::kFailed;
    pod.exit_code = 1;
  }
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_TRUE(ledger.suspects.empty());
}

TEST(Suspects, ALostPeerFoundDuringTheDrainExplainsTheFailure) {
  Observed o = WaitsForLastPod();
  const Time reported = kT0 + seconds(45);
  o.not_ready_nodes = {"gpu-2"};
  const Decision decision = Decide(o, reported);
  const Ledger ledger = Written(decision);
  EXPECT_TRUE(ledger.suspects.empty());
  EXPECT_EQ(ledger.restarts.charged, 0);
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-2");
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.last_failure->pod, "job-1-2");
  EXPECT_EQ(ledger.last_failure->attempt, 1);
  Settle(o, reported + 10 * kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
}

TEST(Suspects, AnOldPodIsNotForcedWhileItsNodeMayBeLost) {
  Observed o = WaitsForLastPod();
  const Time overstayed = *o.pods[0].delete_by + kOverstayMargin;
  EXPECT_TRUE(All<DeletePod>(Settle(o, overstayed)).empty());
  EXPECT_EQ(o.pods.size(), 1U);
  // The node is not reported lost, so the failure was the worker's own.
  Settle(o, kT0 + kSuspicionPeriod);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.pods.size(), 3U);
}

TEST(Suspects, ASpentBudgetWaitsForTheStatusOfThePeersNodes) {
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

// The replacement may avoid a node when no other node has room.
TEST(Suspects, AnUnscheduledReplacementIsRecreatedWhenTheSuspicionEnds) {
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
