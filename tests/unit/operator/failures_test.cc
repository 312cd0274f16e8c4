// SPDX-License-Identifier: Apache-2.0

// Failures: counting, rules, budgets, back-off.
#include <gtest/gtest.h>

#include "operator/core/decide/rules.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

using rendezvous::GangPhase;

Rule OnExit(int32_t code, RuleAction action, bool charge = true) {
  Rule rule;
  rule.exit_codes = {code};
  rule.action = action;
  rule.charge = charge;
  return rule;
}

TEST(Failures, ALostPodIsCountedThenReplacedAlone) {
  Observed o = RunningWorld(3);
  o.pods[1] = Ended(1, 137);
  const Decision first = Decide(o, kT0);
  const Ledger ledger = Written(first);
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.attempt, 1);
  EXPECT_EQ(ledger.counted, std::vector<std::string>{"uid-job-1-1"});
  EXPECT_EQ(ledger.last_failure->exit_code, 137);
  Obey(o, first, kT0);
  const Decision second = Decide(o, kT0);
  ASSERT_EQ(second.actions.size(), 1U);
  EXPECT_EQ(All<DeletePod>(second).at(0).name, "job-1-1");
  Obey(o, second, kT0);
  EXPECT_EQ(All<CreatePod>(Decide(o, kT0)), (std::vector<CreatePod>{{"job-1-1", 1, 1, 3}}));
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

// controller_sim --seed 772523: a new leader sees this ledger with an older view of the pods.
TEST(Failures, TheNextLeaderDoesNotCountAPodTwice) {
  Observed o = RunningWorld(3);
  o.pods[1] = Ended(1, 137);
  const Pod first = o.pods[1];
  Obey(o, Decide(o, kT0), kT0);
  o.pods.erase(o.pods.begin() + 1);
  o.pods[1] = Ended(2, 137);
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.status.ledger.restarts.charged, 2);
  o.pods.insert(o.pods.begin() + 1, first);
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.restarts.charged, 2);
}

TEST(Failures, OtherFrameworksRestartAsAWholeGang) {
  Observed o = RunningWorld(3, false);
  o.pods[1] = Ended(1, 1);
  o.pods[2] = Ended(2, 75);
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.status.ledger.attempt, 2);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
  Settle(o, kT0);
  ASSERT_EQ(o.pods.size(), 3U);
  EXPECT_EQ(o.pods[0].name, "job-2-0");
}

TEST(Failures, OtherFrameworksRestartWhenAPodIsMissing) {
  Observed o = RunningWorld(3, false);
  o.pods.erase(o.pods.begin());
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.attempt, 2);
  EXPECT_EQ(ledger.restarts.charged, 0);
}

TEST(Failures, AMissingNativePodIsRecreated) {
  Observed o = RunningWorld(3);
  o.pods.erase(o.pods.begin());
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(All<CreatePod>(decision), (std::vector<CreatePod>{{"job-1-0", 1, 0, 3}}));
}

TEST(Failures, BadConfigurationFailsTheJobWithThePodsMessage) {
  Observed o = RunningWorld(2);
  o.pods[0] = Ended(0, 64, "spec.training.data.path: no such file");
  const Decision decision = Decide(o, kT0);
  const Ledger ledger = Written(decision);
  EXPECT_EQ(ledger.outcome_reason, Reason::kBadConfiguration);
  EXPECT_NE(ledger.outcome_message.find("no such file"), std::string::npos);
  EXPECT_TRUE(decision.events.at(0).warning);
}

TEST(Failures, ARefusedWorkerIsReplacedOnAnotherNodeWithoutACharge) {
  Observed o = RunningWorld(2);
  o.job.max_restarts = 0;
  o.pods[1] = Ended(1, kExitRefused, "job-1-1 has data 1, the others have data 2");
  o.pods[1].node = "odd-node";
  const Decision decision = Decide(o, kT0);
  const Ledger ledger = Written(decision);
  EXPECT_EQ(ledger.outcome, Outcome::kNone);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.restarts.charged, 0);
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "odd-node");
  EXPECT_NE(decision.events.at(0).message.find("the others have data 2"), std::string::npos);
}

TEST(Failures, TheCoordinatorsReasonIsTheJobs) {
  Observed o = RunningWorld(2);
  o.report->phase = GangPhase::kFailed;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-0", "mutex", 137, "killed long ago"};
  o.report->failure = "the checkpoint of step 300 is missing";
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.outcome_reason, Reason::kTrainingFailed);
  EXPECT_EQ(ledger.outcome_message, "the checkpoint of step 300 is missing");
}

TEST(Failures, AFatalReportFailsTheJob) {
  Observed o = RunningWorld(2);
  o.report->phase = GangPhase::kFailed;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-0", "corrupt", 0, "the states disagree"};
  Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.outcome_reason, Reason::kTrainingFailed);
  EXPECT_NE(ledger.outcome_message.find("the states disagree"), std::string::npos);
  EXPECT_EQ(ledger.last_failure->rule, "default: the coordinator gave up");
  o.report->last_failure.reset();
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kTrainingFailed);
}

TEST(Failures, BadInputThatATrainerReportsIsABadConfiguration) {
  Observed o = RunningWorld(2);
  o.report->phase = GangPhase::kFailed;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "exit", 64, "/data/typo: no such file"};
  // After a step, exit code 64 has another cause, such as a failed last checkpoint.
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kTrainingFailed);
  o.status.ledger.stepped = false;
  o.report->step = 0;
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.outcome_reason, Reason::kBadConfiguration);
  EXPECT_EQ(ledger.outcome_message, "job-1-1: /data/typo: no such file");
  EXPECT_EQ(ledger.last_failure->pod, "job-1-1");
  EXPECT_EQ(ledger.last_failure->exit_code, 64);
  EXPECT_EQ(ledger.last_failure->rule, "default: exit code 64 is a bad configuration");
}

TEST(Failures, ExitCodes) {
  struct Row {
    int32_t code;
    bool charged;
    bool fails;
  };
  for (const Row& row : {Row{1, true, false}, Row{70, true, false}, Row{75, false, false},
                         Row{137, true, false}, Row{143, true, false}, Row{64, true, true}}) {
    Observed o = RunningWorld(2);
    o.pods[0] = Ended(0, row.code);
    const Ledger ledger = Written(Decide(o, kT0));
    EXPECT_EQ(ledger.outcome == Outcome::kFailed, row.fails) << row.code;
    EXPECT_EQ(ledger.restarts.charged, row.charged && !row.fails ? 1 : 0) << row.code;
  }
}

TEST(Failures, RulesAreTriedInOrder) {
  Observed o = RunningWorld(2);
  o.job.rules = {OnExit(3, RuleAction::kRestart, false), OnExit(3, RuleAction::kFail)};
  o.pods[0] = Ended(0, 3);
  Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.restarts.charged, 0);
  EXPECT_EQ(ledger.last_failure->rule, "restart.rules[0]");
  std::swap(o.job.rules[0], o.job.rules[1]);
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kRuleMatched);
}

TEST(Failures, ARuleMayAllowExitCode64) {
  Observed o = RunningWorld(2);
  o.job.rules = {OnExit(64, RuleAction::kRestart)};
  o.pods[0] = Ended(0, 64);
  EXPECT_EQ(Written(Decide(o, kT0)).outcome, Outcome::kNone);
}

TEST(Failures, RulesByMessage) {
  Rule rule;
  rule.message_regex = "Xid (48|63)|ECC";
  rule.charge = false;
  Observed o = RunningWorld(2);
  o.job.rules = {rule};
  o.pods[0] = Ended(0, 1, "NVRM: Xid 63 on GPU 2");
  EXPECT_EQ(Written(Decide(o, kT0)).restarts.charged, 0);
  o.pods[0].message = "Xid 7";
  EXPECT_EQ(Written(Decide(o, kT0)).restarts.charged, 1);
  o.job.rules[0].message_regex = "((";  // validation refuses it; here it matches nothing
  EXPECT_EQ(Written(Decide(o, kT0)).restarts.charged, 1);
}

TEST(Failures, MatchingALongMessageIsFast) {
  Failure failure;
  failure.message = std::string(size_t{4} << 20, 'a') + "!";
  Rule rule;
  rule.message_regex = "^(a|aa|(a+)+)*!$";
  EXPECT_TRUE(ApplyUserRules({rule}, failure, {}).has_value());
  rule.message_regex = "^(a|aa|(a+)+)*\\?$";
  EXPECT_FALSE(ApplyUserRules({rule}, failure, {}).has_value());
}

TEST(Failures, EveryMemberOfARuleMustMatch) {
  Failure failure;
  failure.exit_code = 1;
  failure.message = "boom";
  Rule rule = OnExit(1, RuleAction::kFail);
  rule.message_regex = "bang";
  EXPECT_FALSE(ApplyUserRules({rule}, failure, {}).has_value());
  rule.message_regex = "bo+m";
  EXPECT_TRUE(ApplyUserRules({rule}, failure, {}).has_value());
  rule.pod_condition = "DisruptionTarget";
  EXPECT_FALSE(ApplyUserRules({rule}, failure, {}).has_value());
  EXPECT_TRUE(ApplyUserRules({rule}, failure, {"Ready", "DisruptionTarget"}).has_value());
  rule.hang = true;
  EXPECT_FALSE(ApplyUserRules({rule}, failure, {"DisruptionTarget"}).has_value());
}

TEST(Failures, AnIgnoredFailureIsRepairedButNotRecorded) {
  Observed o = RunningWorld(2);
  o.job.rules = {OnExit(3, RuleAction::kIgnore)};
  o.pods[0] = Ended(0, 3);
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.restarts.total, 0);
  EXPECT_FALSE(ledger.last_failure.has_value());
  EXPECT_EQ(ledger.counted.size(), 1U);
}

TEST(Failures, ASpentRestartBudgetFailsTheJob) {
  Observed o = RunningWorld(2);
  o.job.max_restarts = 1;
  o.job.backoff_initial = o.job.backoff_max = milliseconds(1);
  Time now = kT0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
    o.pods[0].phase = PodPhase::kFailed;
    o.pods[0].exit_code = 1;
    o.report->step += 1;
    now += seconds(10);
    Settle(o, now);
  }
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kRestartBudgetSpent);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

TEST(Failures, PodsLostTogetherAreOneRestart) {
  Observed o = RunningWorld(4);
  for (int32_t rank : {0, 1, 3}) o.pods[static_cast<size_t>(rank)] = Ended(rank, 137);
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_EQ(ledger.counted.size(), 3U);
}

TEST(Failures, NoProgressFailsTheJob) {
  Observed o = RunningWorld(2);
  o.report->failures_without_progress = o.job.max_without_progress;
  EXPECT_EQ(Written(Decide(o, kT0)).outcome, Outcome::kNone);
  o.report->failures_without_progress += 1;
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kNoProgress);
}

TEST(Failures, TheFirstRepairIsImmediateLaterOnesBackOff) {
  Observed o = RunningWorld(2);
  Time now = kT0;
  const auto fail = [&] {
    o.pods[0].phase = PodPhase::kFailed;
    o.pods[0].exit_code = 1;
    Settle(o, now);
  };
  fail();
  EXPECT_EQ(o.pods.size(), 2U);  // recreated already
  o.pods[0].started = now;
  fail();
  EXPECT_EQ(o.pods.size(), 1U);
  EXPECT_EQ(o.status.ledger.not_before, now + seconds(5));
  EXPECT_EQ(Decide(o, now + seconds(4)).requeue_at, now + seconds(5));
  now += seconds(5);
  Settle(o, now);
  EXPECT_EQ(o.pods.size(), 2U);
  fail();
  EXPECT_EQ(o.status.ledger.not_before, now + seconds(10));
  now += seconds(10);
  Settle(o, now);
  o.report->step += 1;  // progress resets the back-off
  fail();
  EXPECT_EQ(o.pods.size(), 2U);
}

TEST(Failures, BackoffDoublesUpToItsLimit) {
  Job job;
  EXPECT_EQ(BackoffDelay(job, 1), seconds(0));
  EXPECT_EQ(BackoffDelay(job, 2), seconds(5));
  EXPECT_EQ(BackoffDelay(job, 3), seconds(10));
  EXPECT_EQ(BackoffDelay(job, 8), seconds(300));
  EXPECT_EQ(BackoffDelay(job, 2'000'000'000), seconds(300));
}

TEST(Failures, AnUnresponsivePodIsForceDeletedAndReplaced) {
  Observed o = RunningWorld(2);
  o.report->silent_pods = {"job-1-1"};
  // The report may still mean the pod's predecessor.
  EXPECT_EQ(Settle(o, kT0 + seconds(1)).requeue_at, kT0 + kSilentGuard);
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  const Decision counted = Decide(o, kT0 + kSilentGuard);
  EXPECT_EQ(Written(counted).last_failure->cause, Cause::kSilent);
  Obey(o, counted, kT0 + kSilentGuard);
  const auto removed = All<DeletePod>(Decide(o, kT0 + kSilentGuard));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_TRUE(removed[0].force());
  o.report->silent_pods.clear();
  Settle(o, kT0 + kSilentGuard);
  EXPECT_EQ(o.pods.size(), 2U);
}

TEST(Failures, APodThatNeverJoinsTheGangIsReplaced) {
  Observed o = RunningWorld(2);
  o.report->live_pods = {"job-1-0"};
  // Every agent is absent at first. That alone is not written.
  EXPECT_EQ(Settle(o, kT0).requeue_at, kT0 + kAbsenceGuard);
  EXPECT_TRUE(o.status.ledger.absent.empty());
  const Time noticed = kT0 + kAbsenceGuard;
  Settle(o, noticed);
  Settle(o, noticed + o.job.startup_limit - seconds(1));
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  Settle(o, noticed + o.job.startup_limit);
  EXPECT_EQ(o.status.ledger.restarts.total, 1);
  EXPECT_EQ(o.status.ledger.last_failure->pod, "job-1-1");
}

TEST(Failures, ALingeringPodGetsTimeToEnd) {
  Observed o = RunningWorld(2);
  o.pods[1] = Ended(1, 1);
  o.pods[1].lingers = true;
  Obey(o, Decide(o, kT0), kT0);
  const auto removed = All<DeletePod>(Decide(o, kT0));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_TRUE(removed[0].force()) << "it is lost";
  o = RunningWorld(2, false);
  o.pods[1] = Ended(1, 1);
  o.pods[1].lingers = true;
  Obey(o, Decide(o, kT0), kT0);
  for (const DeletePod& remove : All<DeletePod>(Decide(o, kT0))) EXPECT_FALSE(remove.force());
}

TEST(Failures, AnEarlyExitZeroIsAPlannedLeave) {
  Observed o = RunningWorld(2);
  o.pods[1] = Ended(1, 0);
  EXPECT_EQ(Settle(o, kT0).requeue_at, kT0 + kExitGuard);  // the finish may still be reported
  const Ledger ledger = Written(Decide(o, kT0 + kExitGuard));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kLeft);
  EXPECT_EQ(ledger.restarts.charged, 0);
  o.report->phase = GangPhase::kFinished;
  EXPECT_EQ(Written(Decide(o, kT0 + kExitGuard)).outcome, Outcome::kSucceeded);
}

TEST(Failures, ATrainerLostInsideItsPodIsRecordedButNotCounted) {
  Observed o = RunningWorld(2);
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "exit", 41, "assertion"};
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(Written(decision).last_failure->exit_code, 41);
  EXPECT_EQ(Written(decision).restarts.total, 0);
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 2U);
  EXPECT_EQ(o.status.ledger.attempt, 1);
  o.report->worker_failures = 2;
  o.job.rules = {OnExit(41, RuleAction::kFail)};
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kRuleMatched);
}

TEST(Failures, RulesApplyToATrainerWhenItsExitCodeIsKnown) {
  Observed o = RunningWorld(2);
  o.job.rules = {OnExit(139, RuleAction::kFail)};
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "mutex", 0, ""};
  Settle(o, kT0);
  EXPECT_FALSE(o.status.ledger.last_failure.has_value());
  o.report->last_failure->exit_code = 139;
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kRuleMatched);
}

// A program that ends with 0 before the job does: its agent says so with the exit code.
TEST(Failures, AnEndWithCodeZeroIsKnownByItsMessage) {
  Observed o = RunningWorld(2);
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "mutex", 0, "ended before the job did"};
  Settle(o, kT0);
  ASSERT_TRUE(o.status.ledger.last_failure.has_value());
  EXPECT_EQ(o.status.ledger.last_failure->message, "ended before the job did");
}

TEST(Failures, RepeatedlyKilledTrainersGetAMemoryHint) {
  Observed o = RunningWorld(2);
  o.report->worker_failures = 4;
  o.report->failures_without_progress = o.job.max_without_progress + 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "mutex", 137, ""};
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.outcome_reason, Reason::kNoProgress);
  EXPECT_EQ(ledger.last_failure->rule, "restart.maxWithoutProgress");
  EXPECT_NE(ledger.outcome_message.find("job-1-1 ended with exit code 137"), std::string::npos);
  EXPECT_NE(ledger.outcome_message.find("limits.memory"), std::string::npos);

  // The end is reported before the exit code. Until then the failure before it explains the loop.
  o.report->last_failure->exit_code = 0;
  o.status.ledger.last_failure = Failure{1, "job-1-0", "", 137, Cause::kExit, "", "", "", kT0};
  const Ledger early = Written(Decide(o, kT0));
  EXPECT_EQ(early.outcome_reason, Reason::kNoProgress);
  EXPECT_EQ(early.last_failure->exit_code, 137);
  EXPECT_NE(early.outcome_message.find("job-1-0 ended with exit code 137"), std::string::npos);
  EXPECT_NE(early.outcome_message.find("limits.memory"), std::string::npos);
}

TEST(Failures, AHangRuleMatchesAHungTrainer) {
  Observed o = RunningWorld(2);
  Rule rule;
  rule.hang = true;
  rule.action = RuleAction::kFail;
  o.job.rules = {rule};
  o.report->worker_failures = 1;
  o.report->last_failure = rendezvous::FailureRecord{"job-1-1", "hang", 137, ""};
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kRuleMatched);
}

TEST(Failures, NoStepInTimeRestartsTheGang) {
  Observed o = RunningWorld(2);
  o.status.ledger.stepped = false;
  o.report->phase = GangPhase::kForming;
  o.report->step = 0;
  Settle(o, kT0 + o.job.startup_limit - seconds(1));
  EXPECT_EQ(o.status.ledger.attempt, 1);
  const Ledger ledger = Written(Decide(o, kT0 + o.job.startup_limit));
  EXPECT_EQ(ledger.attempt, 2);
  EXPECT_EQ(ledger.restarts.charged, 1);
  EXPECT_EQ(ledger.last_failure->cause, Cause::kStartupTimeout);
}

TEST(Failures, NoStepInTimeNamesWorkersThatCannotReachEachOther) {
  Observed o = RunningWorld(2);
  o.status.ledger.stepped = false;
  o.report->phase = GangPhase::kForming;
  o.report->step = 0;
  o.report->unreachable = "job-1-0 cannot reach job-1-1 (10.0.0.7:41233): timed out after 5 s";
  Settle(o, kT0 + o.job.startup_limit - seconds(1));
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  const Ledger ledger = Written(Decide(o, kT0 + o.job.startup_limit));
  EXPECT_TRUE(ledger.last_failure->message.ends_with(": " + o.report->unreachable))
      << ledger.last_failure->message;
}

TEST(Failures, ExitCodesDuringAStopAreNotFailures) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Settle(o, kT0);
  o.pods[0] = Ended(0, 143);
  o.pods[1] = Ended(1, 0);
  Settle(o, kT0 + seconds(5));
  EXPECT_TRUE(o.status.ledger.suspended);
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
}

TEST(Failures, ARuleExcludesTheNodeOfItsFailure) {
  Observed o = RunningWorld(2, false);
  o.job.rules = {OnExit(3, RuleAction::kRestart, false)};
  o.job.rules[0].exclude_node = true;
  o.pods[1] = Ended(1, 3, "Xid 79");
  o.pods[1].node = "gpu-7";
  const Ledger ledger = Written(Decide(o, kT0));
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-7");
}

TEST(Failures, ADisruptionByTheClusterIsNotCharged) {
  Observed o = RunningWorld(2, false);
  o.pods[1] = Ended(1, 137);
  o.pods[1].conditions = {"DisruptionTarget"};
  EXPECT_EQ(Written(Decide(o, kT0)).restarts.charged, 0);
}

TEST(Failures, AnImagePullFailureIsReportedAndLimited) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.ready_since.reset();
  o.pods[1].phase = PodPhase::kPending;
  o.pods[1].waiting_reason = "ImagePullBackOff";
  o.pods[1].waiting_message = "Back-off pulling image \"nothere:1\"";
  const Decision wait = Settle(o, kT0 + kSettlePeriod);
  EXPECT_EQ(wait.requeue_at, kT0 + o.job.startup_limit);
  const Condition& ready = o.status.display.Of(ConditionType::kReady);
  EXPECT_EQ(ready.reason, Reason::kImagePullFailed);
  EXPECT_NE(ready.message.find("nothere:1"), std::string::npos);
  EXPECT_NE(ready.message.find("correct the image's name"), std::string::npos);
  const Ledger after = Written(Decide(o, kT0 + o.job.startup_limit));
  EXPECT_EQ(after.restarts.charged, 1);
  EXPECT_EQ(after.last_failure->cause, Cause::kCannotStart);
  EXPECT_NE(after.last_failure->message.find("imagePullSecrets"), std::string::npos);
}

TEST(Failures, AContainerThatCannotBeCreatedIsReported) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.ready_since.reset();
  o.pods[1].phase = PodPhase::kPending;
  o.pods[1].waiting_reason = "CreateContainerConfigError";
  o.pods[1].waiting_message = "configmap \"settings\" not found";
  Settle(o, kT0 + kSettlePeriod);
  const Condition& ready = o.status.display.Of(ConditionType::kReady);
  EXPECT_EQ(ready.reason, Reason::kContainerNotCreated);
  EXPECT_NE(ready.message.find("\"settings\" not found; create the object"), std::string::npos)
      << ready.message;
}

TEST(Failures, AnInvalidImageNameFailsTheJobAtOnce) {
  Observed o = RunningWorld(2, false);
  o.pods[1].phase = PodPhase::kPending;
  o.pods[1].waiting_reason = "InvalidImageName";
  const Ledger after = Written(Decide(o, kT0));
  EXPECT_EQ(after.outcome, Outcome::kFailed);
  EXPECT_NE(after.outcome_message.find("InvalidImageName"), std::string::npos);
}

TEST(Failures, TheEventNamesTheReasonOfThePodsEnd) {
  Observed o = RunningWorld(2, false);
  o.pods[1] = Ended(1, 137);
  o.pods[1].ended_reason = "OOMKilled";
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(decision.events.size(), 1U);
  EXPECT_NE(decision.events[0].message.find("137 (OOMKilled)"), std::string::npos);
}

}  // namespace
}  // namespace ringmaster::core
