// SPDX-License-Identifier: Apache-2.0

// The finalizer that holds a pod until its end is accounted.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

// Two workers of another framework; rank 1 has succeeded, and something deletes its pod.
Observed CollectedWorld() {
  Observed o = RunningWorld(2, false);
  o.pods[1] = Ended(1, 0);
  for (Pod& pod : o.pods) pod.tracked = true;
  o.pods[1].delete_by = kT0;
  o.pods[1].collected = true;
  return o;
}

TEST(Tracking, ASuccessIsAccountedBeforeItsPodGoes) {
  Observed o = CollectedWorld();
  const Decision counted = Decide(o, kT0);
  EXPECT_EQ(Written(counted).succeeded, std::vector<int32_t>{1}) << ToString(counted);
  EXPECT_EQ(Written(counted).attempt, 1);
  Obey(o, counted, kT0);
  const Decision released = Decide(o, kT0);
  EXPECT_EQ(All<UntrackPod>(released), (std::vector<UntrackPod>{{"job-1-1", "uid-job-1-1"}}));
  EXPECT_EQ(released.actions.size(), 1U) << ToString(released);
  o.pods.pop_back();
  EXPECT_TRUE(Settle(o, kT0).actions.empty());
  EXPECT_EQ(o.status.ledger.attempt, 1);
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_EQ(o.pods.size(), 1U) << "rank 1 is not missing";
  o.pods[0].phase = PodPhase::kSucceeded;
  EXPECT_EQ(Written(Decide(o, kT0)).outcome_reason, Reason::kAllPodsSucceeded);
}

TEST(Tracking, AGangOfWhichOneHasSucceededStartsAgainAsAWhole) {
  Observed o = CollectedWorld();
  Obey(o, Decide(o, kT0), kT0);
  o.pods.clear();
  o.status.ledger.ready_since.reset();  // rank 1 had ended before rank 0 ran
  const Ledger next = Written(Decide(o, kT0));
  EXPECT_EQ(next.attempt, 2);
  EXPECT_TRUE(next.succeeded.empty());
}

// Something deletes a pod by force: without the finalizer it would be gone while its program may still run.
TEST(Tracking, APodThatWasDeletedByForceIsHeldUntilItsNodeReportsItsEnd) {
  Observed o = RunningWorld(2, false);
  for (Pod& pod : o.pods) pod.tracked = true;
  o.pods[0].delete_by = kT0;
  Obey(o, Decide(o, kT0), kT0);
  ASSERT_EQ(o.status.ledger.attempt, 2);
  EXPECT_TRUE(All<UntrackPod>(Decide(o, kT0)).empty()) << ToString(Decide(o, kT0));
  EXPECT_TRUE(All<CreatePod>(Decide(o, kT0)).empty());
  Observed ended = o;
  ended.pods[0].phase = PodPhase::kFailed;
  EXPECT_EQ(All<UntrackPod>(Decide(ended, kT0)).size(), 1U);
  // A node that never reports it holds nothing up.
  const auto forced = All<DeletePod>(Decide(o, kT0 + kOverstayMargin));
  EXPECT_TRUE(std::any_of(forced.begin(), forced.end(), [](const DeletePod& action) {
    return action.name == "job-1-0" && action.force();
  }));
}

TEST(Tracking, WorkThatWasFinishedDuringAnAbsenceIsNotDoneAgain) {
  Observed o = CollectedWorld();
  o.pods[0] = Ended(0, 0);
  o.pods[0].tracked = o.pods[0].collected = true;
  o.pods[0].delete_by = kT0;
  EXPECT_EQ(Written(Decide(o, kT0)).outcome, Outcome::kSucceeded);
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(All<UntrackPod>(Decide(o, kT0 + kFinishGrace)).size(), 2U);
}

// Two agents that have exited, before the new leader that decides: its coordinator knows nothing of the end.
Observed FinishedWorld(bool programs) {
  Observed o = RunningWorld(2);
  o.job.programs = programs;
  o.report.emplace();
  for (int32_t rank = 0; rank < 2; ++rank) {
    o.pods[static_cast<size_t>(rank)] = Ended(rank, 0);
    o.pods[static_cast<size_t>(rank)].tracked = true;
  }
  return o;
}

TEST(Tracking, AJobThatFinishedBeforeItsLeaderRecordedItIsNotRunAgain) {
  using Decider = rendezvous::ProgramPolicy::Decider;
  for (const bool programs : {true, false}) {
    Observed o = FinishedWorld(programs);
    for (Pod& pod : o.pods) pod.finished = true;
    Ledger ledger = Written(Decide(o, kT0 + seconds(60)));
    EXPECT_EQ(ledger.outcome, Outcome::kSucceeded);
    EXPECT_EQ(ledger.outcome_reason, programs ? Reason::kAllPodsSucceeded : Reason::kAllStepsDone);
    // One agent shows it, whatever became of the others: here one was lost with its node.
    o.pods.resize(1);
    o.pods.push_back(Ended(1, 137));
    o.job.policy.decider = Decider::kFirst;
    ledger = Written(Decide(o, kT0 + seconds(60)));
    EXPECT_EQ(ledger.outcome, Outcome::kSucceeded);
    EXPECT_EQ(ledger.outcome_reason, programs ? Reason::kRank0Succeeded : Reason::kAllStepsDone);
    // Also when its pod is being deleted, or the job is to stop.
    o.pods[0].delete_by = kT0;
    o.status.ledger.stop_since = kT0;
    o.job.suspend = true;
    EXPECT_EQ(Written(Decide(o, kT0 + seconds(60))).outcome, Outcome::kSucceeded);
  }
}

// They exit with 0, too: nodes that shut down, or a user, have sent SIGTERM to all of them.
TEST(Tracking, AgentsThatLeftByPlanHaveNotFinishedTheJob) {
  for (const bool programs : {true, false}) {
    Observed o = FinishedWorld(programs);
    const Ledger ledger = Written(Decide(o, kT0 + seconds(60)));
    EXPECT_EQ(ledger.outcome, Outcome::kNone);
    EXPECT_EQ(ledger.restarts.total, 1);
    EXPECT_EQ(ledger.restarts.charged, 0);
  }
}

TEST(Tracking, AnAgentOfAnEarlierAttemptSaysNothingAboutThisOne) {
  Observed o = FinishedWorld(true);
  for (Pod& pod : o.pods) pod.finished = true;
  o.status.ledger.attempt = 2;
  EXPECT_EQ(Decide(o, kT0 + seconds(60)).reason, "converging");
}

TEST(Tracking, TheSuccessOfAPodThatIsNotTrackedIsAccountedAtOnce) {
  Observed o = RunningWorld(2, false);
  o.pods[1] = Ended(1, 0);
  EXPECT_EQ(Written(Decide(o, kT0)).succeeded, std::vector<int32_t>{1});
  o.pods[1].tracked = true;
  EXPECT_EQ(StatusOf(Decide(o, kT0)) == nullptr ? 0U : Written(Decide(o, kT0)).succeeded.size(), 0U);
}

TEST(Tracking, AnExitCodeAfterADeletionIsNoSuccess) {
  Observed o = CollectedWorld();
  o.pods[1].collected = false;
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.attempt, 2);
  EXPECT_TRUE(ledger.succeeded.empty());
}

TEST(Tracking, AFailureIsChargedAlthoughItsPodWasCollected) {
  for (const bool native : {true, false}) {
    Observed o = RunningWorld(2, native);
    o.pods[1] = Ended(1, 3);
    o.pods[1].tracked = o.pods[1].collected = true;
    o.pods[1].delete_by = kT0;
    EXPECT_EQ(Written(Decide(o, kT0)).restarts.total, 1);
    Obey(o, Decide(o, kT0), kT0);
    EXPECT_EQ(All<UntrackPod>(Decide(o, kT0)).size(), 1U);
  }
}

TEST(Tracking, AnEndedJobHoldsNoPod) {
  for (const CleanPods clean : {CleanPods::kNone, CleanPods::kRunning, CleanPods::kAll}) {
    Observed o = RunningWorld(2, false);
    for (Pod& pod : o.pods) pod.tracked = true;
    o.pods[1] = Ended(1, 0);
    o.pods[1].tracked = true;
    o.job.clean_pods = clean;
    o.status.ledger.outcome = Outcome::kFailed;
    const Decision decision = Decide(o, kT0);
    EXPECT_EQ(All<UntrackPod>(decision).size() + All<DeletePod>(decision).size(), 2U) << ToString(decision);
  }
}

TEST(Tracking, PodsOfAnEarlierJobAreLetGo) {
  Observed o = RunningWorld(1);
  o.strays.push_back(MakePod(7, 0));
  o.strays[0].tracked = true;
  const Decision released = Decide(o, kT0);
  EXPECT_EQ(All<UntrackPod>(released).size(), 1U);
  EXPECT_EQ(released.actions.size(), 1U);
  o.strays[0].tracked = false;
  o.pods.clear();
  EXPECT_TRUE(All<CreatePod>(Decide(o, kT0)).empty()) << "the names are taken";
  o.strays[0].unreachable_since = kT0;
  EXPECT_TRUE(All<DeletePod>(Decide(o, kT0 + seconds(600))).empty()) << "its deletion was not requested";
  o.strays[0].delete_by = kT0 + seconds(100);
  EXPECT_TRUE(All<DeletePod>(Decide(o, kT0 + seconds(59))).empty());
  // Without the job, too.
  o.job = {};
  o.job.deleted = true;
  o.pods.clear();
  EXPECT_EQ(Decide(o, kT0 + seconds(59)).requeue_at, kT0 + o.job.unreachable_node_limit);
  const auto forced = All<DeletePod>(Decide(o, kT0 + seconds(60)));
  ASSERT_EQ(forced.size(), 1U);
  EXPECT_TRUE(forced[0].force());
}

// Nothing else reports that the pod outstays its grace period.
TEST(Tracking, ASuspendedJobStillRemovesPodsOfAnEarlierOne) {
  Observed o = NewWorld(2);
  o.job.suspend = true;
  o.status.ledger.attempt = 1;
  o.status.ledger.suspended = true;
  o.strays.push_back(MakePod(7, 0));
  o.strays[0].delete_by = kT0 + seconds(5);
  Obey(o, Decide(o, kT0), kT0);  // the status
  EXPECT_EQ(Decide(o, kT0).requeue_at, kT0 + seconds(5) + kOverstayMargin);
  EXPECT_EQ(All<DeletePod>(Decide(o, kT0 + seconds(15))).size(), 1U);
}

TEST(Tracking, OrphanedPodsRunOn) {
  Observed o = RunningWorld(2);
  o.job.deleted = o.job.orphans = true;
  o.pods[0].tracked = true;
  const Decision decision = Decide(o, kT0);
  EXPECT_EQ(All<UntrackPod>(decision), (std::vector<UntrackPod>{{"job-1-0", "uid-job-1-0"}}));
  EXPECT_EQ(decision.actions.size(), 1U) << ToString(decision);
}

}  // namespace
}  // namespace ringmaster::core
