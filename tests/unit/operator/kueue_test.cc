// SPDX-License-Identifier: Apache-2.0

// Jobs in a queue of Kueue: nothing before the admission, a stop with a checkpoint at an eviction, and what
// the Workload must say meanwhile.
#include <gtest/gtest.h>

#include "tests/unit/operator/kueue_worlds.h"

namespace ringmaster::core {
namespace {

TEST(Kueue, ANewJobAsksForQuotaAndCreatesNothingElse) {
  const Observed o = NewQueued(4);
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(decision.actions.size(), 1U) << ToString(decision);
  const auto made = All<MakeWorkload>(decision);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].queue, "queue");
  EXPECT_EQ(made[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 4, 1}}));
}

// With the operator's flag --kueue-manage-jobs-without-queue-name.
TEST(Kueue, AJobWithoutAQueueDoesNotStart) {
  Observed o = NewWorld(2);
  o.quota.emplace();
  o.quota->required = true;
  for (const Quota::Api api : {Quota::Api::kAbsent, Quota::Api::kUnread, Quota::Api::kRead}) {
    o.quota->api = api;
    LimitToQuota(o);
    const Decision decision = Decide(o, kT0);
    EXPECT_TRUE(All<CreatePod>(decision).empty());
    const Condition admitted = Of(decision, ConditionType::kAdmitted);
    EXPECT_EQ(admitted.reason, Reason::kNoQueue);
    EXPECT_NE(admitted.message.find("set the label kueue.x-k8s.io/queue-name"), std::string::npos);
  }
  // The label is given later.
  Observed queued = o;
  queued.quota->queue = "queue";
  EXPECT_EQ(All<MakeWorkload>(Decide(queued, kT0)).size(), 1U);
  // One that runs when the flag is set runs on.
  Observed runs = RunningWorld(2);
  runs.quota = o.quota;
  LimitToQuota(runs);
  EXPECT_FALSE(HeldByQuota(runs));
}

TEST(Kueue, EachRoleIsAPodSet) {
  Observed o = NewQueued(3);
  o.job.first_differs = true;
  o.job.min = 3;
  o.job.policy.roles = {{"ps", 2}};
  EXPECT_EQ(PodSetsOf(o.job), (std::vector<PodSet>{{kMasterSet, 1}, {kWorkerSet, 2}, {"ps", 2}}));
  EXPECT_EQ(PodSetOf(o.job, 0), kMasterSet);
  EXPECT_EQ(PodSetOf(o.job, 1), kWorkerSet);
  EXPECT_EQ(PodSetOf(o.job, RankInRole("ps", 1)), "ps");
}

TEST(Kueue, AWaitingJobShowsWhatIsMissing) {
  Observed o = NewQueued();
  Enqueue(o, {Waiting(o)});
  const Decision decision = Decide(o, kT0);
  const Condition admitted = Of(decision, ConditionType::kAdmitted);
  EXPECT_EQ(admitted.reason, Reason::kWaitingForQuota);
  EXPECT_EQ(admitted.message,
            "queue queue: couldn't assign flavors: insufficient quota for nvidia.com/gpu, 2 more needed");
  EXPECT_EQ(StatusOf(decision)->status.display.phase, Phase::kPending);
  Obey(o, decision, kT0);
  EXPECT_TRUE(Decide(o, kT0).actions.empty()) << "waiting costs no writes";
  EXPECT_TRUE(WaitingRanks(o).empty()) << "it takes no room from others";
}

// Kueue's own texts name no remedy.
TEST(Kueue, WhatDoesNotExistIsNamedWithARemedy) {
  Observed o = NewQueued();
  Workload w = Waiting(o);
  const auto admitted = [&](const std::string& text) {
    w.waits_for = text;
    Enqueue(o, {w});
    const Decision decision = Decide(o, kT0);
    EXPECT_TRUE(All<CreatePod>(decision).empty() && All<PrepareGang>(decision).empty()) << text;
    return Of(decision, ConditionType::kAdmitted);
  };
  EXPECT_EQ(admitted("LocalQueue queue doesn't exist").reason, Reason::kNoQueue);
  EXPECT_EQ(
      admitted("LocalQueue queue doesn't exist").message,
      "LocalQueue queue doesn't exist; create this LocalQueue in the job's namespace, or correct the label "
      "kueue.x-k8s.io/queue-name");
  EXPECT_EQ(admitted("ClusterQueue gpus doesn't exist").reason, Reason::kNoQueue);
  EXPECT_EQ(admitted("ClusterQueue gpus doesn't exist").message,
            "ClusterQueue gpus doesn't exist; create this ClusterQueue, or another LocalQueue in the job's "
            "namespace, or correct the label kueue.x-k8s.io/queue-name");
  EXPECT_EQ(admitted("ClusterQueue gpus is inactive").message,
            "queue queue: ClusterQueue gpus is inactive; its condition Active names the cause, such as a "
            "ResourceFlavor or an AdmissionCheck that does not exist, or a queue that was stopped");
  const std::string level =
      "couldn't assign flavors to pod set worker: Flavor \"racks\" does not contain the requested level";
  EXPECT_EQ(
      admitted(level).message,
      "queue queue: " + level +
          "; correct the topology annotations (kueue.x-k8s.io/podset-...-topology) of the templates, or "
          "add the level to the flavor's Topology");
  const std::string empty = "couldn't assign flavors to pod set worker: no topology domains at level: rack";
  EXPECT_EQ(admitted(empty).message,
            "queue queue: " + empty +
                "; label the nodes with all levels of the flavor's Topology, or correct the topology "
                "annotations (kueue.x-k8s.io/podset-...-topology) of the templates");
  const std::string plain =
      "couldn't assign flavors to pod set worker: Flavor \"gpus\" does not support TopologyAwareScheduling";
  EXPECT_EQ(admitted(plain).message,
            "queue queue: " + plain +
                "; remove the topology annotations (kueue.x-k8s.io/podset-...-topology) of the templates, or "
                "give the flavor a topologyName");
  EXPECT_EQ(admitted("Admission is gated by: example.com/budget").message,
            "queue queue: Admission is gated by: example.com/budget; the job waits until its "
            "annotation kueue.x-k8s.io/admission-gated-by is removed");
}

TEST(Kueue, AnInvalidLabelCreatesNothing) {
  Observed o = NewQueued();
  o.preflight = Refusal{RefusalKind::kInvalidLabel, "the label x is soon", kT0, kT0};
  const Decision decision = Decide(o, kT0);
  EXPECT_TRUE(All<MakeWorkload>(decision).empty() && All<CreatePod>(decision).empty()) << ToString(decision);
  const Condition admitted = Of(decision, ConditionType::kAdmitted);
  EXPECT_EQ(admitted.reason, Reason::kInvalid);
  EXPECT_EQ(admitted.message,
            "the label x is soon; correct or remove the label, and the job continues by itself");
  EXPECT_EQ(Of(decision, ConditionType::kStalled).reason, Reason::kInvalid);
  o.preflight.reset();
  EXPECT_EQ(All<MakeWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(Kueue, AFlavorThatDoesNotExistStartsNothing) {
  Observed o = NewQueued();
  Workload w = Admitted(o, 2);
  w.missing_flavor = "spot";
  Enqueue(o, {w});
  const Decision decision = Decide(o, kT0);
  EXPECT_TRUE(All<CreatePod>(decision).empty() && All<PrepareGang>(decision).empty());
  EXPECT_EQ(Of(decision, ConditionType::kAdmitted).reason, Reason::kNoFlavor);
  EXPECT_EQ(Of(decision, ConditionType::kAdmitted).message,
            "Kueue admitted the job to ResourceFlavor spot, which does not exist; create it");
  w.missing_flavor.clear();
  Enqueue(o, {w});
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 2U);
}

TEST(Kueue, AWaitingJobShowsItsPosition) {
  Observed o = NewQueued();
  Workload w = Waiting(o);
  w.position = 3;
  Enqueue(o, {w});
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(Of(decision, ConditionType::kAdmitted).message.substr(0, 30), "position 3 in queue queue: cou");
  Obey(o, decision, kT0);
  w.position = 2;
  w.waits_for.clear();
  Enqueue(o, {w});
  EXPECT_TRUE(Decide(o, kT0).actions.empty()) << "a queue that moves fast is not followed";
  EXPECT_EQ(Of(Decide(o, kT0 + kQueuedInterval), ConditionType::kAdmitted).message,
            "waiting at position 2 in queue queue");
}

// Far from the head a status changes three times at most, however often the queue moves.
TEST(Kueue, ADistantPositionIsNotExact) {
  EXPECT_EQ(PositionText(0), "");
  EXPECT_EQ(PositionText(1), "position 1");
  EXPECT_EQ(PositionText(10), "position 10");
  EXPECT_EQ(PositionText(11), "position over 10");
  EXPECT_EQ(PositionText(30), "position over 10");
  EXPECT_EQ(PositionText(31), "position over 30");
  EXPECT_EQ(PositionText(kPositionsListed), "position over 30");
  EXPECT_EQ(PositionText(kPositionsListed + 1), "position over 100");
}

TEST(Kueue, AnAdmittedJobStartsItsFirstAttempt) {
  Observed o = NewQueued();
  Enqueue(o, {Admitted(o, 2)});
  Settle(o, kT0);
  ASSERT_EQ(o.pods.size(), 2U);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Kueue, FewerWorkersThanAskedForAreEnough) {
  Observed o = NewQueued(4);
  Enqueue(o, {Admitted(o, 3)});
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 3U);
  EXPECT_EQ(o.job.Target(), 3);
}

TEST(Kueue, FewerThanTheMinimumAreNot) {
  Observed o = NewQueued(4);
  o.job.min = 2;
  Enqueue(o, {Admitted(o, 1)});
  EXPECT_EQ(All<DeleteWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(Kueue, ReportsWhetherItsPodsAreReady) {
  Observed o = RunningWorld();
  Workload w = Admitted(o, 2);
  w.pods_ready = PodsReady::kWaitForStart;
  Enqueue(o, {w});
  Obey(o, Decide(o, kT0), kT0);  // the display
  auto report = All<SetWorkloadStatus>(Decide(o, kT0));
  ASSERT_EQ(report.size(), 1U);
  EXPECT_EQ(report[0].pods_ready, PodsReady::kStarted);
  w.pods_ready = PodsReady::kStarted;
  Enqueue(o, {w});
  EXPECT_TRUE(Decide(o, kT0).actions.empty());
  o.job.min = 2;
  o.pods[0].phase = PodPhase::kPending;
  for (int i = 0; i < 3; ++i) Obey(o, Decide(o, kT0 + seconds(5)), kT0);  // the order, the display
  report = All<SetWorkloadStatus>(Decide(o, kT0 + seconds(5)));
  ASSERT_EQ(report.size(), 1U);
  EXPECT_EQ(report[0].pods_ready, PodsReady::kWaitForRecovery);
}

TEST(Kueue, AnEvictedJobStopsThenClearsThenWaits) {
  Observed o = RunningWorld();
  Workload w = Admitted(o, 2);
  w.evicted = true;
  w.eviction_reason = "Preempted";
  w.eviction_message = "to make room";
  Enqueue(o, {w});
  Decision decision = Decide(o, kT0);
  EXPECT_TRUE(Written(decision).stop_since) << ToString(decision);
  EXPECT_EQ(Of(decision, ConditionType::kAdmitted).reason, Reason::kEvicted);
  Obey(o, decision, kT0);
  decision = Decide(o, kT0);
  ASSERT_EQ(All<SetGang>(decision).size(), 1U);
  EXPECT_TRUE(All<SetGang>(decision)[0].stop) << "the workers write a checkpoint";
  EXPECT_TRUE(All<SetWorkloadStatus>(decision).empty()) << "the quota is kept while there are pods";
  o.pods.clear();
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_TRUE(o.status.ledger.suspended);
  auto change = All<SetWorkloadStatus>(Decide(o, kT0));
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].change, Change::kClear);
  EXPECT_EQ(change[0].reason, "Preempted");
  EXPECT_EQ(change[0].revision, 7U);

  Workload cleared = Waiting(o);
  cleared.evicted = true;
  Enqueue(o, {cleared});
  Settle(o, kT0);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_EQ(o.status.display.phase, Phase::kPending);

  Enqueue(o, {Admitted(o, 2)});
  decision = Decide(o, kT0);
  EXPECT_EQ(Written(decision).attempt, 2) << "it resumes";
}

TEST(Kueue, ADeactivatedJobSaysHowToReactivateIt) {
  Observed o = RunningWorld();
  o.status.ledger.suspended = true;
  o.pods.clear();
  Workload w = Waiting(o);
  w.active = false;
  w.evicted = true;
  Enqueue(o, {w});
  const Condition admitted = Of(Decide(o, kT0), ConditionType::kAdmitted);
  EXPECT_EQ(admitted.reason, Reason::kDeactivated);
  EXPECT_NE(admitted.message.find("spec.active of Workload job-abcde"), std::string::npos);
}

TEST(Kueue, AJobWithoutItsWorkloadStops) {
  Observed o = RunningWorld();
  Enqueue(o);
  EXPECT_TRUE(Written(Decide(o, kT0)).stop_since);
}

TEST(Kueue, ASuspendedJobHasNoWorkload) {
  Observed o = RunningWorld();
  o.job.suspend = true;
  o.status.ledger.suspended = true;
  o.pods.clear();
  Workload w = Admitted(o, 2);
  Enqueue(o, {w});
  EXPECT_EQ(All<DeleteWorkload>(Decide(o, kT0)).size(), 1U);
  w.deleting = true;
  Enqueue(o, {w});
  EXPECT_EQ(All<ReleaseWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(Kueue, AnEndedJobFinishesItsWorkloadWhenItsPodsAreGone) {
  Observed o = RunningWorld();
  Workload w = Admitted(o, 2);
  Enqueue(o, {w});
  o.status.ledger.outcome = Outcome::kSucceeded;
  o.status.ledger.outcome_message = "100 steps done";
  o.status.ledger.completion_time = kT0 - seconds(60);
  EXPECT_TRUE(All<SetWorkloadStatus>(Decide(o, kT0)).empty());
  o.pods.clear();
  const auto change = All<SetWorkloadStatus>(Decide(o, kT0));
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].change, Change::kFinish);
  EXPECT_EQ(change[0].reason, "Succeeded");
  w.finished = true;
  Enqueue(o, {w});
  EXPECT_EQ(All<ReleaseWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(Kueue, ADeletedJobLetsGoWhenItsPodsAreGone) {
  Observed o = RunningWorld();
  o.job.deleted = true;
  Enqueue(o, {Admitted(o, 2)});
  EXPECT_TRUE(All<ReleaseWorkload>(Decide(o, kT0)).empty());
  o.pods.clear();
  EXPECT_EQ(All<ReleaseWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(Kueue, AnElasticJobGivesBackWhatItDoesNotUse) {
  Observed o = RunningWorld(4);
  Workload w = Admitted(o, 4);
  o.job.replicas = 2;
  Enqueue(o, {w});
  for (int i = 0; i < 10; ++i) {
    const Decision decision = Decide(o, kT0 + seconds(i));
    const auto change = All<SetWorkloadStatus>(decision);
    if (change.empty()) {
      Obey(o, decision, kT0 + seconds(i));
      continue;
    }
    EXPECT_EQ(o.pods.size(), 2U) << "only when the workers are gone";
    EXPECT_EQ(change[0].change, Change::kGiveBack);
    EXPECT_EQ(change[0].unused, (std::vector<Grant>{{kWorkerSet, 2}}));
    return;
  }
  FAIL() << "nothing is given back";
}

// As Kueue's Job and JobSet do. A job that starts all of them again needs all of its quota again.
TEST(Kueue, AFinishedRankGivesItsQuotaBackUntilTheGangStartsAgain) {
  Observed o = RunningWorld(3, false);
  o.job.min = o.job.max = 3;
  Workload w = Admitted(o, 3);
  Enqueue(o, {w});
  o.pods[1] = Ended(1, 0);
  std::vector<SetWorkloadStatus> change;
  for (int i = 0; i < 10 && change.empty(); ++i) {
    const Decision decision = Decide(o, kT0 + seconds(i));
    change = All<SetWorkloadStatus>(decision);
    if (change.empty()) Obey(o, decision, kT0 + seconds(i));
  }
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(o.status.ledger.succeeded, std::vector<int32_t>{1});
  EXPECT_EQ(change[0].change, Change::kGiveBack);
  EXPECT_EQ(change[0].unused, (std::vector<Grant>{{kWorkerSet, 1}}));

  w.grants = {{kWorkerSet, 2, 1}};
  Enqueue(o, {w});
  EXPECT_EQ(o.job.granted, 3);
  EXPECT_FALSE(HeldByQuota(o));
  EXPECT_TRUE(All<SetWorkloadStatus>(Decide(o, kT0 + seconds(20))).empty());

  // Another one fails: the next attempt has no quota for the worker that had finished.
  o.pods[0] = Ended(0, 1, "boom");
  bool asked = false;
  for (int i = 0; i < 60 && !asked; ++i) {
    const Time now = kT0 + seconds(30 + 5 * i);
    const Decision decision = Decide(o, now);
    EXPECT_TRUE(All<CreatePod>(decision).empty());
    asked = !All<DeleteWorkload>(decision).empty();
    EXPECT_TRUE(!asked || o.pods.empty());
    Obey(o, decision, now);
    LimitToQuota(o);
  }
  EXPECT_TRUE(asked);
  EXPECT_EQ(o.status.ledger.restarts.charged, 1);
}

TEST(Kueue, WithoutKueueNothingStartsAndNothingStops) {
  Observed o = NewQueued();
  o.quota->api = Quota::Api::kAbsent;
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(Of(decision, ConditionType::kAdmitted).reason, Reason::kNoKueue);
  EXPECT_EQ(Of(decision, ConditionType::kStalled).truth, Truth::kTrue);

  Observed running = RunningWorld();
  Enqueue(running);
  running.quota->api = Quota::Api::kAbsent;
  Settle(running, kT0);
  EXPECT_EQ(running.pods.size(), 2U);
  EXPECT_EQ(running.status.ledger.attempt, 1);
}

TEST(Kueue, AnUnknownQueueHasARemedy) {
  Observed o = NewQueued();
  Workload w = Waiting(o);
  w.waits_for = "LocalQueue nope doesn't exist";
  Enqueue(o, {w});
  EXPECT_EQ(Of(Decide(o, kT0), ConditionType::kAdmitted).reason, Reason::kNoQueue);
}

TEST(Kueue, AChangedLabelIsFollowedWhileTheJobWaits) {
  Observed o = NewQueued();
  Workload w = Waiting(o);
  w.queue = "before";
  Enqueue(o, {w});
  const auto made = All<MakeWorkload>(Decide(o, kT0));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].name, "job-abcde");
  EXPECT_EQ(made[0].queue, "queue");

  Observed running = RunningWorld();
  w = Admitted(running, 2);
  w.queue = "before";
  Enqueue(running, {w});
  Settle(running, kT0);
  EXPECT_EQ(running.pods.size(), 2U) << "not while it has quota";
}

// A job that runs without a queue needs no Workload. One without quota is deleted, then let go of.
TEST(Kueue, AWorkloadOfAJobThatNeedsNoneIsRemoved) {
  Observed o = RunningWorld();
  Obey(o, Decide(o, kT0), kT0);  // the display
  Workload w = Waiting(o);
  Enqueue(o, {w});
  o.quota->queue.clear();
  EXPECT_EQ(All<DeleteWorkload>(Decide(o, kT0)).size(), 1U);
  o.quota->workloads[0].deleting = true;
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(All<ReleaseWorkload>(decision).size(), 1U) << ToString(decision);
  EXPECT_TRUE(All<DeleteWorkload>(decision).empty());
  o.quota->workloads[0].held = false;
  EXPECT_TRUE(Decide(o, kT0).actions.empty());
}

TEST(Kueue, AWorkloadOfAnEarlierJobIsLetGoOf) {
  Observed o;
  o.job.name = "job";
  o.job.deleted = true;
  o.stray_workloads = {{"job-abcde", "uid-workload"}};
  EXPECT_EQ(All<ReleaseWorkload>(Decide(o, kT0)).size(), 1U);
}

}  // namespace
}  // namespace ringmaster::core
