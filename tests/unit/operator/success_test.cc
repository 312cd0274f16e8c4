// SPDX-License-Identifier: Apache-2.0

// Which ranks must end with 0 for a job without agents to succeed, and what follows a success. Which failures
// of programs do not count.
#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(Success, Rank0MayDecideAlone) {
  Observed o = RunningWorld(3, false);
  o.job.success = Success::kRank0;
  o.pods[1] = Ended(1, 0);
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone) << "rank 1 does not decide";
  EXPECT_EQ(o.status.ledger.attempt, 1) << "and its success is held";
  o.pods[0] = Ended(0, 0);
  Settle(o, kT0 + seconds(61));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kRank0Succeeded);
  Settle(o, kT0 + seconds(120));
  for (const Pod& pod : o.pods) EXPECT_FALSE(pod.alive()) << pod.name << " waits without an end";
}

TEST(Success, AFailedRank0DecidesNothing) {
  Observed o = RunningWorld(2, false);
  o.job.success = Success::kRank0;
  o.pods[0] = Ended(0, 1);
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

TEST(Success, ALauncherSucceedsWithItsRanks) {
  Observed o = RunningWorld(2);
  o.job.programs = true;
  o.job.policy.decider = rendezvous::ProgramPolicy::Decider::kFirst;
  o.job.policy.counts_ranks = true;
  o.report->phase = rendezvous::GangPhase::kFinished;
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kLauncherSucceeded);
}

TEST(Success, TheCodeThatFollowsTheTrainingGetsTimeToEnd) {
  Observed o = RunningWorld(2);
  o.job.finish_grace = seconds(95);
  o.report->phase = rendezvous::GangPhase::kFinished;
  o.report->done = rendezvous::Done{true, 100, 1.5, 0, {}, "abc", "def"};
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
  Settle(o, kT0 + seconds(94));
  EXPECT_EQ(o.pods.size(), 2U);
  Settle(o, kT0 + seconds(95));
  EXPECT_TRUE(o.pods.empty());
}

// Nothing restarts but that program. Where a rule is about its exit code, the coordinator reports an
// incident.
TEST(Programs, OneThatStartsAgainAloneIsRecordedButNotCounted) {
  Observed o = RunningWorld(2);
  o.job.programs = true;
  o.job.max_restarts = 0;
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "exit", 137, ""};
  Settle(o, kT0);
  ASSERT_TRUE(o.status.ledger.last_failure.has_value());
  EXPECT_EQ(o.status.ledger.last_failure->pod, "job-1-1");
  EXPECT_EQ(o.status.ledger.last_failure->exit_code, 137);
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
}

TEST(Programs, ANewLeaderHearsFromAllBeforeTheJobGetsSmaller) {
  Observed o = RunningWorld(3);
  o.job.programs = true;
  o.job.replicas = 2;
  o.status.ledger.stepped = true;
  o.report->generation = 0;
  o.report->phase = rendezvous::GangPhase::kForming;
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 3U);
  o.report->generation = 7;
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 2U);
}

// A coordinator may fail before its first generation, for example because a checkpoint is missing.
TEST(Success, AFailureAfterASuspensionIsBelievedBeforeTheFirstGeneration) {
  Observed o = RunningWorld(2);
  o.status.ledger.report_floor = (rendezvous::Generation{1} << 32) | 5;
  o.report.emplace();
  o.report->term = 1;
  o.report->phase = rendezvous::GangPhase::kFailed;
  o.report->failure = "the checkpoint of step 100 is missing";
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone) << "of the coordinator before the suspension";
  o.report->term = 2;
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kFailed);
  EXPECT_NE(o.status.ledger.outcome_message.find("is missing"), std::string::npos);
}

TEST(Programs, AnIncidentIsOneFailure) {
  Observed o = RunningWorld(2);
  o.job.programs = true;
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-0", "exit", 1, "no space left"};
  o.report->incident = rendezvous::Incident{7, *o.report->last_failure};
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(Written(decision).last_failure->pod, "job-1-0");
  EXPECT_EQ(Written(decision).restarts.total, 1);
  EXPECT_EQ(decision.events.size(), 1U);
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
}

// The agents start the next incarnation once the order says that the failure is accounted: that is, after the
// back-off.
TEST(Programs, TheNextIncarnationWaitsForTheBackOff) {
  Observed o = RunningWorld(2);
  o.job.programs = true;
  o.job.backoff_initial = seconds(20);
  o.job.backoff_max = seconds(100);
  Settle(o, kT0);
  ASSERT_TRUE(o.order.has_value());
  o.report->worker_failures = 2;
  o.report->failures_without_progress = 2;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-0", "exit", 1, "no space left"};
  o.report->incident = rendezvous::Incident{7, *o.report->last_failure};
  o.status.ledger.failures_in_row = 1;
  Settle(o, kT0);
  ASSERT_EQ(o.status.ledger.incident, 7U) << "accounted";
  ASSERT_TRUE(o.status.ledger.not_before.has_value());
  const Time due = *o.status.ledger.not_before;
  ASSERT_GT(due, kT0);
  EXPECT_LT(o.order->accounted, 7U);
  EXPECT_LE(Settle(o, due - seconds(1)).requeue_at.value_or(Time::max()), due) << "it comes back in time";
  EXPECT_LT(o.order->accounted, 7U);
  Settle(o, due);
  EXPECT_EQ(o.order->accounted, 7U);
}

TEST(Programs, AnEvictionIsNotCharged) {
  Observed o = RunningWorld(2);
  o.job.programs = true;
  Settle(o, kT0);
  o.pods[1].conditions = {"DisruptionTarget"};
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "exit", 143, ""};
  o.report->incident = rendezvous::Incident{7, *o.report->last_failure};
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.incident, 7U);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  ASSERT_TRUE(o.status.ledger.last_failure.has_value());
  EXPECT_EQ(o.status.ledger.last_failure->node, o.pods[1].node);

  // The condition of another pod says nothing about this one.
  o.report->worker_failures = 2;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-0", "exit", 1, ""};
  o.report->incident = rendezvous::Incident{8, *o.report->last_failure};
  Settle(o, kT0 + seconds(1000));
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

}  // namespace
}  // namespace ringmaster::core
