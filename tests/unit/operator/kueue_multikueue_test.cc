// SPDX-License-Identifier: Apache-2.0

// Jobs that Kueue runs on another cluster: on the cluster that they were created in, and on that one.
#include <gtest/gtest.h>

#include "tests/unit/operator/kueue_worlds.h"

namespace ringmaster::core {
namespace {

Observed RemoteWorld() {
  Observed o = NewQueued(4);
  o.job.remote = true;
  return o;
}

TEST(MultiKueue, TheManagerOnlyAsksForQuota) {
  Observed o = RemoteWorld();
  Decision decision = Decide(o, kT0);
  ASSERT_EQ(decision.actions.size(), 1U) << ToString(decision);
  EXPECT_EQ(All<MakeWorkload>(decision).size(), 1U);
  Enqueue(o, {Waiting(o)});
  EXPECT_TRUE(Decide(o, kT0).actions.empty()) << "Kueue writes the status";
  Enqueue(o, {Admitted(o, 4)});
  o.quota->workloads[0].pods_ready = PodsReady::kUnreported;
  EXPECT_TRUE(Decide(o, kT0).actions.empty()) << "its pods are on the other cluster";
}

// Without the report Kueue would evict it after a time.
TEST(MultiKueue, ReportsWhatTheCopiedStatusSays) {
  Observed o = RemoteWorld();
  Enqueue(o, {Admitted(o, 4)});
  o.quota->workloads[0].pods_ready = PodsReady::kWaitForStart;
  o.status = RunningWorld(4).status;
  o.status.display.conditions[static_cast<size_t>(ConditionType::kReady)].truth = Truth::kTrue;
  const auto report = All<SetWorkloadStatus>(Decide(o, kT0));
  ASSERT_EQ(report.size(), 1U);
  EXPECT_EQ(report[0].pods_ready, PodsReady::kStarted);
}

TEST(MultiKueue, AnEvictionIsClearedAtOnce) {
  Observed o = RemoteWorld();
  Workload w = Admitted(o, 4);
  w.evicted = true;
  Enqueue(o, {w});
  const auto change = All<SetWorkloadStatus>(Decide(o, kT0));
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].change, Change::kClear);
}

TEST(MultiKueue, AJobThatHasEndedDoesNotRunAgain) {
  Observed o = RemoteWorld();
  Workload w = Admitted(o, 4);
  w.finished = true;
  Enqueue(o, {w});
  // Its status has not been copied yet, or is not seen.
  Decision decision = Decide(o, kT0);
  ASSERT_EQ(decision.actions.size(), 1U) << ToString(decision);
  EXPECT_EQ(All<ReleaseWorkload>(decision).size(), 1U);
  o.quota->workloads[0].held = false;
  EXPECT_TRUE(Decide(o, kT0).actions.empty());
}

TEST(MultiKueue, SuspendedOrDeletedItLeavesTheOtherCluster) {
  Observed o = RemoteWorld();
  Enqueue(o, {Admitted(o, 4)});
  o.job.suspend = true;
  EXPECT_EQ(All<DeleteWorkload>(Decide(o, kT0)).size(), 1U);
  o.job.suspend = false;
  o.job.deleted = true;
  EXPECT_EQ(All<ReleaseWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(MultiKueue, TheWorkerAdoptsTheReadyMadeWorkload) {
  Observed o = NewQueued(4);
  o.quota->prebuilt = "job-abcde";
  Decision decision = Decide(o, kT0);
  EXPECT_TRUE(All<MakeWorkload>(decision).empty()) << ToString(decision);
  EXPECT_TRUE(All<CreatePod>(decision).empty());
  Obey(o, decision, kT0);
  o.quota->offered = Waiting(o);
  const auto adopt = All<AdoptWorkload>(Decide(o, kT0));
  ASSERT_EQ(adopt.size(), 1U);
  EXPECT_EQ(adopt[0].name, "job-abcde");
  EXPECT_EQ(adopt[0].revision, 7U);

  // MultiKueue compares it with its own: it must stay as it is.
  Workload w = Waiting(o);
  w.outdated = true;
  w.pod_sets[0].min = 0;
  Enqueue(o, {w});
  o.quota->prebuilt = "job-abcde";
  EXPECT_TRUE(All<MakeWorkload>(Decide(o, kT0)).empty());
  Enqueue(o, {Admitted(o, 4)});
  o.quota->prebuilt = "job-abcde";
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 4U);
}

}  // namespace
}  // namespace ringmaster::core
