// SPDX-License-Identifier: Apache-2.0

// The lifecycle without failures: start, scale, suspend, end.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

using rendezvous::GangPhase;

TEST(Decide, WritesTheAttemptBeforeCreatingObjects) {
  Observed o = NewWorld(3);
  const Decision first = Decide(o, kT0);
  EXPECT_EQ(Written(first).attempt, 1);
  Obey(o, first, kT0);
  const Decision second = Decide(o, kT0);
  EXPECT_EQ(All<SetGang>(second), (std::vector<SetGang>{{1, 1, 8, 3, false}}));
  EXPECT_EQ(All<PrepareGang>(second), (std::vector<PrepareGang>{{1, 3, 1}}));
  EXPECT_TRUE(All<SetStatus>(second).empty());
  EXPECT_TRUE(All<CreatePod>(second).empty());
  Obey(o, second, kT0);
  const Decision third = Decide(o, kT0);
  EXPECT_EQ(All<CreatePod>(third),
            (std::vector<CreatePod>{{"job-1-0", 1, 0, 3}, {"job-1-1", 1, 1, 3}, {"job-1-2", 1, 2, 3}}));
  EXPECT_TRUE(All<SetStatus>(third).empty());
}

TEST(Decide, EqualInputsGiveEqualDecisions) {
  for (const Observed& o : {NewWorld(), RunningWorld(), RunningWorld(3, false)})
    EXPECT_EQ(Decide(o, kT0), Decide(o, kT0));
}

// A job as the API server creates it: its status names attempt 1.
Observed BornWorld(int32_t target) {
  Observed o = NewWorld(target);
  o.job.in_place = false;
  o.job.min = o.job.max = target;
  o.status.ledger.attempt = 1;
  return o;
}

TEST(Decide, AJobThatStartsAtOnceIsWrittenOnce) {
  Observed o = BornWorld(2);
  int writes = 0;
  Time now = kT0;
  for (int i = 0; i < 20; ++i, now += milliseconds(10)) {
    const Decision decision = Decide(o, now);
    writes += StatusOf(decision) == nullptr ? 0 : 1;
    Obey(o, decision, now);
  }
  EXPECT_EQ(writes, 1);
  const Ledger& ledger = o.status.ledger;
  EXPECT_EQ(ledger.attempt, 1);
  EXPECT_EQ(ledger.gang_size, 2);
  EXPECT_TRUE(ledger.ready_since && ledger.start_time && ledger.active_since);
  EXPECT_EQ(o.status.display.phase, Phase::kRunning);
}

TEST(Decide, AJobWhosePodsDoNotStartIsWrittenWhenTheySettle) {
  Observed o = BornWorld(2);
  Time now = kT0;
  const auto round = [&] {
    const Decision decision = Decide(o, now);
    Obey(o, decision, now);
    for (Pod& pod : o.pods) {
      pod.phase = PodPhase::kPending;
      pod.node.clear();
    }
    return decision;
  };
  EXPECT_EQ(All<PrepareGang>(round()).size(), 1U);
  EXPECT_EQ(All<CreatePod>(round()).size(), 2U);
  const Decision wait = round();
  EXPECT_TRUE(wait.actions.empty());
  EXPECT_EQ(wait.requeue_at, kT0 + kSettlePeriod);
  now += kSettlePeriod;
  EXPECT_EQ(Written(round()).attempt_since, kT0) << "the time of the first pod";
  EXPECT_EQ(o.status.display.observed_spec_generation, o.job.spec_generation);
}

TEST(Decide, AJobOfAnotherSizeBeforeItsFirstWriteBeginsAnotherAttempt) {
  Observed o = BornWorld(4);
  Obey(o, Decide(o, kT0), kT0);
  o.job.replicas = o.job.min = o.job.max = 2;
  const Ledger next = Written(Decide(o, kT0));
  EXPECT_EQ(next.attempt, 2);
  EXPECT_EQ(next.gang_size, 2);
}

TEST(Decide, ANewJobThatIsSuspendedHasNoPods) {
  Observed o = BornWorld(2);
  o.job.suspend = true;
  EXPECT_TRUE(Written(Decide(o, kT0)).suspended);
  Obey(o, Decide(o, kT0), kT0);
  o.job.suspend = false;
  EXPECT_EQ(Written(Decide(o, kT0)).attempt, 2) << "pods that a deposed leader creates are of attempt 1";
}

TEST(Decide, ARunningJobNeedsNoActions) {
  Observed o = RunningWorld();
  const Decision decision = Settle(o, kT0 + seconds(60));
  EXPECT_EQ(decision.reason, "as desired");
  EXPECT_EQ(o.pods.size(), 2U);
  EXPECT_EQ(o.status.display.phase, Phase::kRunning);
  EXPECT_EQ(o.status.display.Of(ConditionType::kReady).truth, Truth::kTrue);
  EXPECT_EQ(o.status.display.Of(ConditionType::kFabricReady).reason, Reason::kGangFormed);
  EXPECT_EQ(o.status.display.Of(ConditionType::kProgressing).reason, Reason::kStepAdvanced);
}

TEST(Decide, ReportsTheTransportAndTcpInPlaceOfRdma) {
  Observed o = RunningWorld();
  o.job.wants_rdma = true;
  const auto fabric = [&o](const char* transport, Time at) {
    o.report->transport = transport;
    Settle(o, at);
    EXPECT_EQ(o.status.display.transport, transport);
    return o.status.display.Of(ConditionType::kFabricReady);
  };
  EXPECT_EQ(fabric("ucx:cma+rc_mlx5", kT0).truth, Truth::kTrue);
  EXPECT_EQ(fabric("ucx:cma+rc_mlx5", kT0).message, "gradients travel over ucx:cma+rc_mlx5");
  EXPECT_EQ(fabric("ucx:rc_mlx5+tcp", kT0 + seconds(60)).reason, Reason::kTcpFallback);
  EXPECT_EQ(fabric("ucx:tcp", kT0 + seconds(120)).truth, Truth::kFalse);
  EXPECT_EQ(fabric("shm", kT0 + seconds(180)).truth, Truth::kTrue) << "one host needs no NIC";
  o.job.wants_rdma = false;
  EXPECT_EQ(fabric("ucx:tcp", kT0 + seconds(240)).truth, Truth::kTrue);
  o.report.reset();
  Settle(o, kT0 + seconds(300));
  EXPECT_EQ(o.status.display.transport, "ucx:tcp") << "the next leader has no report yet";
}

TEST(Decide, ReportsTheDevicesOfTheWorkers) {
  Observed o = RunningWorld();
  Settle(o, kT0);
  EXPECT_EQ(o.status.display.devices, "");
  const rendezvous::Facts well = {"NVIDIA H200", "580.95", "mlx5_0:1", {}};
  rendezvous::Facts hot = well;
  hot.device_faults = {"gpu 0: hot", "gpu 0: slow"};
  o.report->facts = {{"a", well}, {"a", well}, {"b", hot}, {"c", {"NVIDIA A100", "570.1", "", {}}}};
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.display.devices,
            "1 x NVIDIA A100, driver 570.1; 3 x NVIDIA H200, driver 580.95; device faults on: b");
  o.report->facts = {{"a", hot}, {"b", hot}, {"c", hot}, {"d", hot}, {"e", hot}};
  Settle(o, kT0 + seconds(120));
  EXPECT_EQ(o.status.display.devices, "5 x NVIDIA H200, driver 580.95; device faults on: a, b, c and 2 more");
  o.report.reset();
  Settle(o, kT0 + seconds(180));
  EXPECT_NE(o.status.display.devices, "") << "the next leader has no report yet";
}

TEST(Decide, ProgressAloneIsWrittenOncePerInterval) {
  Observed o = RunningWorld();
  Settle(o, kT0);
  o.report->step = 11;
  const Decision early = Decide(o, kT0 + seconds(1));
  EXPECT_TRUE(early.actions.empty());
  ASSERT_TRUE(early.requeue_at.has_value());
  EXPECT_LE(*early.requeue_at, kT0 + o.job.progress_interval);
  o.report->loss = 2.123456789012345;
  o.report->samples_per_second = 1234.5678;
  o.report->seconds_left = 60;
  Settle(o, kT0 + o.job.progress_interval);
  EXPECT_EQ(o.status.display.progress.step, 11);
  EXPECT_EQ(o.status.display.progress.loss, 2.12346);
  EXPECT_EQ(o.status.display.progress.samples_per_second, 1235);
  EXPECT_EQ(o.status.display.progress.seconds_left, 60);
}

TEST(Decide, GrowingCreatesOnlyTheMissingRanks) {
  Observed o = RunningWorld(2);
  o.job.replicas = 4;
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(All<SetGang>(decision).at(0).target, 4);
  EXPECT_EQ(All<PrepareGang>(decision), (std::vector<PrepareGang>{{1, 4, 1}}));
  EXPECT_TRUE(All<DeletePod>(decision).empty());
  Obey(o, decision, kT0);
  EXPECT_EQ(All<CreatePod>(Decide(o, kT0)),
            (std::vector<CreatePod>{{"job-1-2", 1, 2, 4}, {"job-1-3", 1, 3, 4}}));
}

TEST(Decide, ShrinkingDeletesTheHighestRanksGracefully) {
  Observed o = RunningWorld(4);
  o.job.replicas = 2;
  const Decision decision = Decide(o, kT0);
  const auto removed = All<DeletePod>(decision);
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].name, "job-1-2");
  EXPECT_EQ(removed[1].name, "job-1-3");
  EXPECT_EQ(removed[0].grace, o.job.grace);
  // Their exit codes are not failures.
  o.pods[3] = Ended(3, 1);
  o.order->target = 2;
  EXPECT_TRUE(All<SetStatus>(Decide(o, kT0)).empty());
}

TEST(Decide, TheTargetIsClampedToMinAndMax) {
  Observed o = RunningWorld(2);
  o.job.replicas = 50;
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(All<CreatePod>(Decide(o, kT0)).size(), 6U);
  o.job.min = 2;
  o.job.replicas = 0;
  EXPECT_TRUE(All<DeletePod>(Decide(o, kT0)).empty());
}

TEST(Decide, OtherFrameworksRestartToChangeTheirSize) {
  Observed o = RunningWorld(2, false);
  o.job.replicas = 3;
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.status.ledger.attempt, 2);
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  const Decision drain = Decide(o, kT0);
  EXPECT_EQ(All<DeletePod>(drain).size(), 2U);
  EXPECT_TRUE(All<CreatePod>(drain).empty());  // I3
  // The supporting objects of the new attempt do not wait for the drain.
  EXPECT_EQ(drain.actions.front(), Action(PrepareGang{2, 3, 3}));
  Obey(o, drain, kT0);
  EXPECT_EQ(All<CreatePod>(Decide(o, kT0)).size(), 3U);
}

TEST(Decide, ARefusalOfSupportingObjectsDoesNotDelayTheDrain) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.attempt = 2;
  o.status.ledger.ready_since.reset();
  o.refusal = Refusal{RefusalKind::kQuota, "services", kT0, kT0 + seconds(60)};
  const Decision decision = Decide(o, kT0);
  EXPECT_TRUE(All<PrepareGang>(decision).empty());
  EXPECT_EQ(All<DeletePod>(decision).size(), 2U);
}

// The node removes the pod next; another request would only load the API server.
TEST(Decide, APodThatEndedAfterItsDeletionIsLeftToItsNode) {
  Observed o = RunningWorld(1, false);
  o.status.ledger.attempt = 2;
  o.status.ledger.ready_since.reset();
  o.prepared->attempt = 2;
  Pod& pod = o.pods[0];
  pod.phase = PodPhase::kFailed;
  pod.delete_by = kT0 + seconds(30);
  pod.ended = kT0;
  const Decision patient = Settle(o, kT0);
  ASSERT_EQ(o.pods.size(), 1U);
  const Time overstayed = *o.pods[0].delete_by + kOverstayMargin;
  EXPECT_EQ(patient.requeue_at, overstayed);
  const auto removed = All<DeletePod>(Decide(o, overstayed));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_TRUE(removed[0].force());
  // A lost node removes nothing.
  o.pods[0].unreachable_since = kT0;
  EXPECT_EQ(All<DeletePod>(Decide(o, kT0)).size(), 1U);
}

TEST(Decide, NoPodIsCreatedDuringTheDrain) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.attempt = 2;
  o.status.ledger.ready_since.reset();
  for (Pod& pod : o.pods) pod.delete_by = kT0 + seconds(5);
  const Decision decision = Decide(o, kT0);
  EXPECT_TRUE(All<CreatePod>(decision).empty());
  EXPECT_TRUE(All<DeletePod>(decision).empty());
}

TEST(Decide, APodThatOverstaysItsGraceIsForced) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.attempt = 2;
  o.status.ledger.ready_since.reset();
  for (Pod& pod : o.pods) pod.delete_by = kT0;
  const auto removed = All<DeletePod>(Decide(o, kT0 + kOverstayMargin));
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_TRUE(removed[0].force());
}

TEST(Decide, TheDrainDoesNotWaitForAPreemptedPodsFullGrace) {
  Observed o = RunningWorld(2, false);
  o.job.grace = seconds(600);
  o.pods[1].delete_by = kT0 + seconds(600);
  const Decision begun = Decide(o, kT0);
  EXPECT_EQ(Written(begun).attempt, 2) << ToString(begun);
  EXPECT_EQ(Written(begun).restarts.total, 0);
  Obey(o, begun, kT0);
  const auto removed = All<DeletePod>(Decide(o, kT0));
  ASSERT_EQ(removed.size(), 2U);
  for (const DeletePod& remove : removed) EXPECT_EQ(remove.grace, kDrainGrace);
  o.pods[1].delete_by = kT0 + kDrainGrace;
  for (const DeletePod& remove : All<DeletePod>(Decide(o, kT0))) EXPECT_EQ(remove.name, "job-1-0");
}

TEST(Decide, APodOfAnImpossibleAttemptIsRemoved) {
  Observed o = RunningWorld(2);
  o.pods.push_back(MakePod(std::numeric_limits<int64_t>::max(), 0));
  const auto removed = All<DeletePod>(Decide(o, kT0));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].uid, o.pods.back().uid);
  o.pods[0] = Ended(0, 1);
  o.job.in_place = false;
  o.status.ledger.gang_size = 2;
  EXPECT_EQ(Written(Decide(o, kT0)).attempt, 2);
}

TEST(Decide, APodOfAnImpossibleRankDoesNotMakeTheGangLarger) {
  Observed o = NewWorld(2);
  o.status.ledger.attempt = 1;  // as the API server creates it
  o.pods.push_back(MakePod(1, std::numeric_limits<int32_t>::max() - 1));
  EXPECT_EQ(Begun(o, kT0).status.ledger.gang_size, 2);
  o.pods.push_back(MakePod(1, 4));
  EXPECT_EQ(Begun(o, kT0).status.ledger.gang_size, 5);
}

TEST(Decide, PodsOfALaterAttemptRaiseTheAttempt) {
  Observed o = RunningWorld(2);
  o.pods.push_back(MakePod(7, 0));
  EXPECT_EQ(Written(Decide(o, kT0)).attempt, 8);
}

TEST(Decide, SuspendingWritesACheckpointThenRemovesAllPods) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_EQ(o.status.ledger.stop_since, kT0);
  const Decision order = Decide(o, kT0);
  ASSERT_EQ(All<SetGang>(order).size(), 1U);
  EXPECT_TRUE(All<SetGang>(order)[0].stop);
  EXPECT_TRUE(All<DeletePod>(order).empty());  // the workers write their checkpoint
  Settle(o, kT0 + seconds(1));
  EXPECT_EQ(o.pods.size(), 2U);
  o.report->phase = GangPhase::kStopped;
  Settle(o, kT0 + seconds(2));
  EXPECT_TRUE(o.pods.empty());
  EXPECT_TRUE(o.status.ledger.suspended);
  EXPECT_EQ(o.status.display.phase, Phase::kSuspended);
  EXPECT_EQ(o.status.ledger.active_before, seconds(2));
}

TEST(Decide, AStopThatTakesTooLongIsForced) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Settle(o, kT0);
  const auto removed = All<DeletePod>(Decide(o, kT0 + o.job.grace));
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_TRUE(removed[0].force());
}

TEST(Decide, ResumingStartsANewAttemptAndIgnoresTheOldReport) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Settle(o, kT0);
  o.report->phase = GangPhase::kStopped;
  Settle(o, kT0 + seconds(1));
  ASSERT_TRUE(o.status.ledger.suspended);
  o.job.suspend = false;
  Settle(o, kT0 + seconds(100));
  EXPECT_EQ(o.status.ledger.attempt, 2);
  EXPECT_EQ(o.pods.size(), 2U);
  EXPECT_EQ(o.pods[0].name, "job-2-0");
  EXPECT_EQ(o.order, (SetGang{2, 1, 8, 2, false}));
  EXPECT_FALSE(o.status.ledger.suspended);
}

TEST(Decide, AStopIsCarriedOutEvenWhenTheSpecIsChangedBack) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Settle(o, kT0);
  o.job.suspend = false;
  EXPECT_EQ(Settle(o, kT0 + seconds(1)).reason.substr(0, 8), "stopping");
  o.report->phase = GangPhase::kStopped;
  o.report->done = rendezvous::Done{false, 50, 1.5, 0, {}, "abc", "def"};
  Settle(o, kT0 + seconds(2));
  EXPECT_EQ(o.status.ledger.attempt, 2);
  EXPECT_EQ(o.status.display.weights_hash, "") << "those are not the final weights";
  EXPECT_FALSE(o.status.ledger.stop_since.has_value());
}

TEST(Decide, AJobSubmittedSuspendedCreatesNothing) {
  Observed o = NewWorld();
  o.job.suspend = true;
  Settle(o, kT0);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_TRUE(o.status.ledger.suspended);
  EXPECT_EQ(o.status.ledger.attempt, 0);
}

TEST(Decide, AFinishedJobSucceedsAndItsAgentsGetTimeToExit) {
  Observed o = RunningWorld(2);
  o.report->phase = GangPhase::kFinished;
  o.report->done = rendezvous::Done{true, 100, 1.5, 0, {}, "abc", "def"};
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
  EXPECT_EQ(o.status.display.phase, Phase::kSucceeded);
  EXPECT_EQ(o.status.display.weights_hash, "abc");
  const Decision wait = Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 2U);
  EXPECT_EQ(wait.requeue_at, kT0 + kFinishGrace);
  Settle(o, kT0 + kFinishGrace);
  EXPECT_TRUE(o.pods.empty());
}

TEST(Decide, FinishingWinsOverASuspensionInProgress) {
  Observed o = RunningWorld(2);
  o.job.suspend = true;
  Settle(o, kT0);
  o.report->phase = GangPhase::kFinished;
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
}

TEST(Decide, CleanPodsSelectsWhichPodsAreRemoved) {
  for (const auto& [clean, left] :
       {std::pair{CleanPods::kNone, 2}, std::pair{CleanPods::kRunning, 1}, std::pair{CleanPods::kAll, 0}}) {
    Observed o = RunningWorld(2, false);
    o.job.clean_pods = clean;
    o.pods[1] = Ended(1, 64);
    Settle(o, kT0);
    EXPECT_EQ(o.status.ledger.outcome, Outcome::kFailed);
    EXPECT_EQ(static_cast<int>(o.pods.size()), left);
  }
}

TEST(Decide, ASidecarDoesNotOutliveItsJob) {
  Observed o = RunningWorld(2, false);
  for (int32_t rank = 0; rank < 2; ++rank) o.pods[static_cast<size_t>(rank)] = Ended(rank, 0);
  o.pods[1].lingers = true;
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_EQ(o.status.ledger.outcome, Outcome::kSucceeded);
  const auto removed = All<DeletePod>(Decide(o, kT0 + kFinishGrace));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].name, "job-1-1");
  EXPECT_FALSE(removed[0].force());
}

TEST(Decide, AJobWithoutPodsLeavesNoPodGroup) {
  Observed o = RunningWorld(1);
  o.holds_groups = true;
  EXPECT_TRUE(All<DropGroups>(Decide(o, kT0)).empty());
  Observed ended = o;
  ended.report->phase = GangPhase::kFinished;
  Obey(ended, Decide(ended, kT0), kT0);
  EXPECT_TRUE(All<DropGroups>(Decide(ended, kT0)).empty()) << "its pods are ending";
  ended.pods.clear();
  EXPECT_EQ(All<DropGroups>(Decide(ended, kT0)).size(), 1U);
  ended.holds_groups = false;
  EXPECT_TRUE(Decide(ended, kT0).actions.empty());

  o.job.suspend = true;
  o.pods.clear();
  Obey(o, Decide(o, kT0), kT0);
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_TRUE(o.status.ledger.suspended);
  EXPECT_EQ(All<DropGroups>(Decide(o, kT0)).size(), 1U);
}

TEST(Decide, AJobIsDeletedAfterItsTimeToLive) {
  Observed o = RunningWorld(1);
  o.job.ttl = seconds(60);
  o.report->phase = GangPhase::kFinished;
  Settle(o, kT0);
  o.pods.clear();
  EXPECT_TRUE(All<DeleteJob>(Decide(o, kT0 + seconds(59))).empty());
  EXPECT_EQ(All<DeleteJob>(Decide(o, kT0 + seconds(60))).size(), 1U);
}

TEST(Decide, OtherFrameworksSucceedWhenAllPodsSucceed) {
  Observed o = RunningWorld(2, false);
  o.pods[0] = Ended(0, 0);
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.ledger.outcome, Outcome::kNone);
  o.pods[1] = Ended(1, 0);
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.ledger.outcome_reason, Reason::kAllPodsSucceeded);
}

TEST(Decide, ADeletedJobOnlyDeletesPods) {
  Observed o = RunningWorld(2);
  o.job.deleted = true;
  o.pods.pop_back();
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(All<DeletePod>(decision).size(), decision.actions.size());
  EXPECT_EQ(decision.actions.size(), 1U);
}

// Each status write costs the API server as much as a pod, so one that is outdated at once is avoided.
TEST(Display, TheDisplayOfAStartingGangWaitsUntilItsPodsSettle) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.ready_since.reset();
  o.status.ledger.placed = false;
  o.status.display.progress_at = kT0;
  for (Pod& pod : o.pods) pod.phase = PodPhase::kPending;
  const Decision hold = Decide(o, kT0 + kSettlePeriod - milliseconds(1));
  EXPECT_TRUE(hold.actions.empty()) << ToString(hold);
  EXPECT_EQ(hold.requeue_at, kT0 + kSettlePeriod);
  EXPECT_TRUE(Written(Decide(o, kT0 + kSettlePeriod)).placed);
  // The wait extends while pods change, up to a limit.
  o.pods[1].placed = kT0 + kMaxSettlePeriod - seconds(1);
  EXPECT_TRUE(Decide(o, o.pods[1].placed + seconds(1) - milliseconds(1)).actions.empty());
  EXPECT_NE(StatusOf(Decide(o, kT0 + kMaxSettlePeriod)), nullptr);
  // When all pods run, the status is written at once.
  for (Pod& pod : o.pods) pod.phase = PodPhase::kRunning;
  const Decision running = Decide(o, o.pods[1].placed);
  EXPECT_TRUE(Written(running).ready_since.has_value());
  EXPECT_EQ(StatusOf(running)->status.display.phase, Phase::kRunning);
}

TEST(Display, ANativeJobIsStartingWhenItsPodsTakeTime) {
  Observed o = RunningWorld(2);
  o.status.ledger.ready_since.reset();
  o.status.ledger.placed = false;
  o.status.display.progress_at = kT0;
  o.report->phase = GangPhase::kForming;
  for (Pod& pod : o.pods) pod.phase = PodPhase::kPending;
  EXPECT_TRUE(Decide(o, kT0 + milliseconds(1)).actions.empty()) << "they may run in a moment";
  const Decision shown = Decide(o, kT0 + kSettlePeriod);
  ASSERT_NE(StatusOf(shown), nullptr) << ToString(shown);
  EXPECT_EQ(StatusOf(shown)->status.display.phase, Phase::kStarting);
  Obey(o, shown, kT0 + kSettlePeriod);
  EXPECT_TRUE(Decide(o, kT0 + kSettlePeriod + milliseconds(1)).actions.empty()) << "once";
}

// Thousands of jobs that start together are slow; that must not cost more writes.
TEST(Display, ASlowGangGetsAsMuchTimeToSettleAsItsStartTook) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.ready_since.reset();
  o.status.ledger.placed = false;
  o.status.display.progress_at = kT0;
  o.pods[0].placed = kT0 + seconds(2);
  o.pods[0].started = kT0 + seconds(7);
  o.pods[1].placed = kT0 + seconds(6);
  o.pods[1].phase = PodPhase::kPending;
  const Decision hold = Decide(o, kT0 + seconds(14) - milliseconds(1));
  EXPECT_TRUE(hold.actions.empty()) << ToString(hold);
  EXPECT_EQ(hold.requeue_at, kT0 + seconds(14));
  EXPECT_TRUE(Written(Decide(o, kT0 + seconds(14))).placed);
}

TEST(Display, ConditionsAloneAreWrittenOncePerInterval) {
  Observed o = RunningWorld(2, false);
  Settle(o, kT0 + seconds(60));
  ASSERT_EQ(o.status.display.progress_at, kT0 + seconds(60));
  o.preflight = Refusal{RefusalKind::kForbidden, "no", kT0, kT0};  // changes Admitted alone
  const Time due = kT0 + seconds(60) + kDisplayInterval;
  const Decision hold = Decide(o, due - milliseconds(1));
  EXPECT_TRUE(hold.actions.empty()) << ToString(hold);
  EXPECT_EQ(hold.requeue_at, due);
  const Decision shown = Decide(o, due);
  ASSERT_NE(StatusOf(shown), nullptr);
  EXPECT_EQ(StatusOf(shown)->status.display.Of(ConditionType::kAdmitted).truth, Truth::kFalse);
}

}  // namespace
}  // namespace ringmaster::core
