// SPDX-License-Identifier: Apache-2.0

#include "operator/core/decide/summary.h"

#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(Summary, TheRecordedGenerationNeverDecreases) {
  Observed observed;
  observed.status.display.gang_generation = (uint64_t{3} << 32) | 7;
  observed.report.emplace();  // of a coordinator that has just begun
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{3} << 32) | 7);
  observed.report->generation = (uint64_t{4} << 32) | 1;
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{4} << 32) | 1);
}

// What kstatus reads, and Helm 4 and Flux with it: Stalled is a failure, Reconciling or a false Ready is work
// under way, Ready is done. Reconciling and Stalled are only there while they are true.
struct Reconciliation {
  Truth ready;
  Truth reconciling;
  Truth stalled;
  Reason reason;  // of the one that is true
};

Reconciliation ReconciliationOf(const Observed& o) {
  const Display display = Summarize(o, o.status.ledger, kT0);
  for (const ConditionType type : {ConditionType::kReconciling, ConditionType::kStalled}) {
    const Condition& condition = display.Of(type);
    EXPECT_TRUE(condition == Condition{} || condition.truth == Truth::kTrue);
  }
  Reason reason = Reason::kUnknown;
  for (const ConditionType type :
       {ConditionType::kReady, ConditionType::kReconciling, ConditionType::kStalled})
    if (display.Of(type).truth == Truth::kTrue) reason = display.Of(type).reason;
  return {display.Of(ConditionType::kReady).truth, display.Of(ConditionType::kReconciling).truth,
          display.Of(ConditionType::kStalled).truth, reason};
}

void ExpectReady(const Observed& o, Reason reason) {
  const Reconciliation found = ReconciliationOf(o);
  EXPECT_EQ(found.ready, Truth::kTrue);
  EXPECT_EQ(found.reconciling, Truth::kUnknown);
  EXPECT_EQ(found.stalled, Truth::kUnknown);
  EXPECT_EQ(found.reason, reason);
}
void ExpectReconciling(const Observed& o, Reason reason) {
  const Reconciliation found = ReconciliationOf(o);
  EXPECT_EQ(found.ready, Truth::kFalse);
  EXPECT_EQ(found.reconciling, Truth::kTrue);
  EXPECT_EQ(found.stalled, Truth::kUnknown);
  EXPECT_EQ(found.reason, reason);
}
void ExpectStalled(const Observed& o, Reason reason) {
  const Reconciliation found = ReconciliationOf(o);
  EXPECT_EQ(found.reconciling, Truth::kUnknown);
  EXPECT_EQ(found.stalled, Truth::kTrue);
  EXPECT_EQ(found.reason, reason);
}

TEST(Summary, KstatusSeesARunningJobAsCurrent) {
  Observed o = RunningWorld();
  ExpectReady(o, Reason::kAllPodsRunning);
  o.pods[1].phase = PodPhase::kPending;
  ExpectReconciling(o, Reason::kWaitingForPods);
  o.pods[1].node.clear();
  ExpectReconciling(o, Reason::kWaitingForPods);
}

TEST(Summary, KstatusSeesASucceededOrSuspendedJobAsCurrent) {
  Observed o = RunningWorld();
  o.pods.clear();
  o.status.ledger.outcome = Outcome::kSucceeded;
  o.status.ledger.outcome_reason = Reason::kAllStepsDone;
  ExpectReady(o, Reason::kAllStepsDone);
  o.status.ledger.outcome = Outcome::kNone;
  o.status.ledger.stop_since = kT0;
  o.job.suspend = true;
  ExpectReconciling(o, Reason::kStopping);
  o.status.ledger.stop_since.reset();
  o.status.ledger.suspended = true;
  ExpectReady(o, Reason::kSuspendRequested);
  o.job.suspend = false;  // it is about to resume
  ExpectReconciling(o, Reason::kSuspendRequested);
}

TEST(Summary, KstatusSeesAJobThatNeedsAUserAsFailed) {
  Observed o = RunningWorld();
  o.preflight = Refusal{RefusalKind::kPodSecurity, "hostNetwork", kT0, kT0};
  ExpectStalled(o, Reason::kPodSecurity);
  o.preflight.reset();
  o.pods.clear();
  o.refusal = Refusal{RefusalKind::kQuota, "exceeded quota", kT0, kT0};
  ExpectReconciling(o, Reason::kQuotaExceeded);
  o.refusal.reset();
  o.status.ledger.outcome = Outcome::kFailed;
  o.status.ledger.outcome_reason = Reason::kNoProgress;
  ExpectStalled(o, Reason::kNoProgress);

  Observed invalid = RunningWorld();
  invalid.invalid = "spec.workers.template.spec.extra: nested deeper than 64";
  invalid.status.display = Summarize(invalid, invalid.status.ledger, kT0);
  invalid.status.display.conditions[static_cast<size_t>(ConditionType::kStalled)] = {};
  const Display display = SummarizeInvalid(invalid, kT0);
  EXPECT_EQ(display.Of(ConditionType::kStalled).reason, Reason::kInvalid);
  EXPECT_EQ(display.observed_spec_generation, invalid.job.spec_generation);
}

TEST(Summary, WorkersThatCannotReachEachOtherAreNotReady) {
  Observed observed = RunningWorld(2, true);
  observed.job.programs = true;
  observed.report->phase = rendezvous::GangPhase::kForming;
  observed.report->unreachable = "job-1-0 cannot reach job-1-1 (10.0.0.7:41233): timed out after 5 s";
  const Display display = Summarize(observed, observed.status.ledger, kT0);
  for (const ConditionType type :
       {ConditionType::kReady, ConditionType::kFabricReady, ConditionType::kReconciling}) {
    const Condition& condition = display.Of(type);
    EXPECT_EQ(condition.truth, type == ConditionType::kReconciling ? Truth::kTrue : Truth::kFalse);
    EXPECT_EQ(condition.reason, Reason::kPeersUnreachable);
    EXPECT_TRUE(condition.message.starts_with(observed.report->unreachable)) << condition.message;
    EXPECT_NE(condition.message.find("NetworkPolicies"), std::string::npos);
  }
  EXPECT_EQ(display.Of(ConditionType::kDegraded).truth, Truth::kFalse) << "all pods run";
  observed.report->unreachable.clear();
  ExpectReady(observed, Reason::kAllPodsRunning);
}

TEST(Summary, AFailedCheckpointDegradesTheJob) {
  Observed observed = RunningWorld(2, true);
  observed.report->checkpoint_failure = "write /checkpoints/x: No space left on device; free space there";
  const Condition degraded = Summarize(observed, observed.status.ledger, kT0).Of(ConditionType::kDegraded);
  EXPECT_EQ(degraded.truth, Truth::kTrue);
  EXPECT_EQ(degraded.reason, Reason::kCheckpointFailing);
  EXPECT_NE(degraded.message.find("free space there"), std::string::npos);
  observed.report->checkpoint_failure.clear();
  EXPECT_EQ(Summarize(observed, observed.status.ledger, kT0).Of(ConditionType::kDegraded).reason,
            Reason::kAsDesired);
}

}  // namespace
}  // namespace ringmaster::core
