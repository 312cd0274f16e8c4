// SPDX-License-Identifier: Apache-2.0

// Jobs whose spec this version refuses, and the deadline of jobs.
#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

using rendezvous::GangPhase;

TEST(Decide, AnInvalidSpecIsReportedOnceAndChangesNothing) {
  Observed o = RunningWorld();
  Settle(o, kT0);
  const Status before = o.status;
  o.invalid = "spec.workers.template: no";
  o.job.spec_generation += 1;
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(decision.actions.size(), 1U);
  ASSERT_EQ(decision.events.size(), 1U);
  EXPECT_EQ(decision.events[0].reason, "Invalid");
  EXPECT_EQ(Written(decision), before.ledger);
  Obey(o, decision, kT0);
  const Condition& admitted = o.status.display.Of(ConditionType::kAdmitted);
  EXPECT_EQ(admitted.truth, Truth::kFalse);
  EXPECT_EQ(admitted.reason, Reason::kInvalid);
  EXPECT_EQ(admitted.message, o.invalid);
  EXPECT_EQ(o.status.display.observed_spec_generation, o.job.spec_generation);
  EXPECT_EQ(o.status.display.phase, before.display.phase);
  EXPECT_TRUE(Decide(o, kT0 + seconds(60)).actions.empty()) << "reported once";
  o.invalid.clear();
  Settle(o, kT0 + seconds(61));
  EXPECT_EQ(o.status.display.Of(ConditionType::kAdmitted).reason, Reason::kAccepted);
  EXPECT_EQ(o.pods.size(), 2U);
}

// A later version of the operator may refuse a spec that an earlier one accepted.
TEST(Decide, AnEndedJobIsCleanedUpAlthoughItsSpecIsInvalid) {
  Observed o = RunningWorld(2);
  o.report->phase = GangPhase::kFinished;
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
  o.invalid = "spec.workers.template: no";
  o.job.ttl = seconds(60);
  Settle(o, kT0 + kFinishGrace);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_NE(o.status.display.Of(ConditionType::kStalled).truth, Truth::kTrue);
  EXPECT_EQ(o.status.display.Of(ConditionType::kSucceeded).truth, Truth::kTrue);
  EXPECT_EQ(All<DeleteJob>(Decide(o, kT0 + seconds(60))).size(), 1U);
}

TEST(Decide, TheDeadlineHoldsForAJobWithAnInvalidSpec) {
  Observed o = RunningWorld(2);
  o.job.active_deadline = seconds(100);
  Settle(o, kT0);
  o.invalid = "spec.workers.template: no";
  const Time deadline = *o.status.ledger.active_since + seconds(100);
  EXPECT_EQ(Settle(o, deadline - seconds(1)).requeue_at, deadline);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  Settle(o, deadline);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kFailed);
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kDeadlineExceeded);
}

TEST(Decide, AJobWithAnInvalidSpecCanBeSuspendedAndCorrected) {
  Observed o = RunningWorld(2, false);
  Settle(o, kT0);
  o.invalid = "spec.workers.template: no";
  o.job.suspend = true;
  EXPECT_TRUE(Written(Decide(o, kT0)).stop_since.has_value());
  Obey(o, Decide(o, kT0), kT0);
  o.pods.clear();
  Settle(o, kT0 + seconds(1));
  EXPECT_EQ(o.status.display.Of(ConditionType::kSuspended).truth, Truth::kTrue);
  EXPECT_EQ(o.status.display.Of(ConditionType::kAdmitted).reason, Reason::kInvalid);
  o.job.suspend = false;
  EXPECT_TRUE(Decide(o, kT0 + seconds(2)).actions.empty()) << "not resumed while the spec is invalid";
  o.invalid.clear();
  EXPECT_EQ(Written(Decide(o, kT0 + seconds(3))).attempt, 2);
}

TEST(Decide, TheDeadlineDoesNotCountTimeInAQueue) {
  Observed o = WaitingWorld(4, 0);
  o.job.active_deadline = seconds(100);
  Settle(o, kT0);
  for (const int after : {200, 5000}) {
    Settle(o, kT0 + seconds(after));
    EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone) << "it waits for room";
  }
  o.fit = {4, ""};
  Settle(o, kT0 + seconds(5000));
  ASSERT_TRUE(o.status.ledger.placed);
  Settle(o, kT0 + seconds(5099));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  Settle(o, kT0 + seconds(5100));
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kDeadlineExceeded);
}

TEST(Decide, TheDeadlineCountsOnlyActiveTime) {
  Observed o = RunningWorld(2);
  o.job.active_deadline = seconds(100);
  Settle(o, kT0 + seconds(40));
  o.job.suspend = true;
  Settle(o, kT0 + seconds(40));
  o.report->phase = GangPhase::kStopped;
  Settle(o, kT0 + seconds(40));
  ASSERT_TRUE(o.status.ledger.suspended);
  Settle(o, kT0 + seconds(4000));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  o.job.suspend = false;
  Settle(o, kT0 + seconds(5000));
  Settle(o, kT0 + seconds(5059));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  Settle(o, kT0 + seconds(5060));
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kDeadlineExceeded);
  EXPECT_NE(o.status.ledger.outcome_message.find("raise it"), std::string::npos);
  EXPECT_TRUE(o.pods.empty());
}

}  // namespace
}  // namespace ringmaster::core
