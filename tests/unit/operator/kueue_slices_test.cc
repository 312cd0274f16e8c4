// SPDX-License-Identifier: Apache-2.0

// Jobs that grow by slices of their Workload.
#include <gtest/gtest.h>

#include "tests/unit/operator/kueue_worlds.h"

namespace ringmaster::core {
namespace {

// A running job of `workers` that grows by slices, and its admitted slice.
Observed SlicedWorld(int32_t workers, int32_t replicas) {
  Observed o = RunningWorld(workers);
  o.job.slices = true;
  Workload w = Admitted(o, workers);
  w.slice = true;
  w.chain = w.name;
  o.job.replicas = replicas;
  Enqueue(o, {w});
  return o;
}

// Decides until an action about a Workload is due, and returns that decision.
Decision UntilWorkload(Observed& o, Time& now) {
  for (int i = 0; i < 20; ++i) {
    now += seconds(1);
    Decision decision = Decide(o, now);
    if (std::any_of(decision.actions.begin(), decision.actions.end(), IsAboutWorkload)) return decision;
    Obey(o, decision, now);
    LimitToQuota(o);
  }
  return {};
}

Workload Larger(const Observed& o) {
  Workload next = o.quota->workloads[0];
  next.name = "job-next";
  next.uid = "uid-next";
  next.replaces = o.quota->workloads[0].name;
  next.pod_sets = PodSetsOf(o.job);
  next.reserved = next.admitted = false;
  next.grants.clear();
  next.pods_ready = PodsReady::kUnreported;
  next.waits_for = "2 more needed";
  return next;
}

TEST(Slices, AskForAllWorkersAtOnce) {
  Observed o = NewQueued(4);
  o.job.slices = true;
  const auto made = All<MakeWorkload>(Decide(o, kT0));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 4, 0}})) << "Kueue admits no part of a slice";
  EXPECT_TRUE(made[0].slice);
  EXPECT_EQ(made[0].replaces, "");
}

TEST(Slices, GrowthIsALargerSlice) {
  Time now = kT0;
  Observed o = SlicedWorld(2, 4);
  o.quota->queue = "other";
  const auto made = All<MakeWorkload>(UntilWorkload(o, now));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].name, "");
  EXPECT_EQ(made[0].replaces, "job-abcde");
  EXPECT_EQ(made[0].chain, "job-abcde");
  EXPECT_EQ(made[0].queue, "queue") << "the quota that it replaces counts in its queue only";
  EXPECT_EQ(made[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 4, 0}}));
  EXPECT_EQ(o.pods.size(), 2U);

  // Without Kueue's annotation it keeps its size until the next admission.
  Observed plain = SlicedWorld(2, 4);
  plain.job.slices = false;
  EXPECT_TRUE(UntilWorkload(plain, now).actions.empty());
}

TEST(Slices, WorkersStartWhenTheLargerOneIsAdmitted) {
  Time now = kT0;
  Observed o = SlicedWorld(2, 4);
  Workload next = Larger(o);
  Enqueue(o, {o.quota->workloads[0], next});
  EXPECT_TRUE(UntilWorkload(o, now).actions.empty());
  EXPECT_EQ(o.pods.size(), 2U) << "it waits";
  EXPECT_EQ(o.status.display.Of(ConditionType::kAdmitted).message,
            "runs with 2 of 4 workers, and waits for more: 2 more needed");

  // Kueue has reserved its quota and finished the smaller one; a check is pending.
  next.reserved = true;
  next.grants = {{kWorkerSet, 4}};
  Workload old = o.quota->workloads[0];
  old.finished = true;
  Enqueue(o, {old, next});
  EXPECT_FALSE(HeldByQuota(o)) << "it runs on";
  EXPECT_TRUE(UntilWorkload(o, now).actions.empty());
  EXPECT_EQ(o.pods.size(), 2U);

  next.admitted = true;
  Enqueue(o, {old, next});
  const Decision decision = UntilWorkload(o, now);
  EXPECT_EQ(o.pods.size(), 4U);
  EXPECT_EQ(o.status.ledger.attempt, 1);
  ASSERT_EQ(All<DeleteWorkload>(decision).size(), 1U) << ToString(decision);
  EXPECT_EQ(All<DeleteWorkload>(decision)[0].name, "job-abcde");
  Enqueue(o, {next});
  const auto report = All<SetWorkloadStatus>(UntilWorkload(o, now));
  ASSERT_EQ(report.size(), 1U);
  EXPECT_EQ(report[0].name, "job-next");
  EXPECT_EQ(report[0].pods_ready, PodsReady::kStarted);
}

TEST(Slices, AReplacedSliceIsFinishedEvenIfKueueEnded) {
  Time now = kT0;
  Observed o = SlicedWorld(2, 4);
  Workload next = Larger(o);
  next.reserved = next.admitted = true;
  next.grants = {{kWorkerSet, 4}};
  Enqueue(o, {o.quota->workloads[0], next});
  EXPECT_EQ(LiveWorkload(o)->name, "job-next");
  const auto finish = All<SetWorkloadStatus>(UntilWorkload(o, now));
  ASSERT_EQ(finish.size(), 1U);
  EXPECT_EQ(finish[0].change, Change::kFinish);
  EXPECT_EQ(finish[0].name, "job-abcde");
  EXPECT_EQ(finish[0].reason, "WorkloadSliceReplaced");
}

TEST(Slices, ARequestFollowsTheSpec) {
  Time now = kT0;
  Observed o = SlicedWorld(2, 4);
  const Workload next = Larger(o);
  o.job.replicas = 6;
  Enqueue(o, {o.quota->workloads[0], next});
  const auto made = All<MakeWorkload>(UntilWorkload(o, now));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].name, "job-next");
  EXPECT_EQ(made[0].replaces, "job-abcde");
  EXPECT_EQ(made[0].pod_sets[0].count, 6);

  o.job.replicas = 2;
  Enqueue(o, {o.quota->workloads[0], next});
  const auto gone = All<DeleteWorkload>(UntilWorkload(o, now));
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].name, "job-next");
  EXPECT_EQ(gone[0].revision, next.revision) << "Kueue may admit it meanwhile, and finish the one before it";
}

TEST(Slices, ShrinkInPlaceAndCanGrowAgain) {
  Time now = kT0;
  Observed o = SlicedWorld(4, 2);
  const auto resized = All<ResizeWorkload>(UntilWorkload(o, now));
  ASSERT_EQ(resized.size(), 1U);
  EXPECT_EQ(resized[0].pod_sets[0].count, 2);
  EXPECT_EQ(o.pods.size(), 2U) << "only when the workers are gone";
  Workload w = o.quota->workloads[0];
  w.pod_sets[0].count = 2;
  w.grants[0].count = 2;
  o.job.replicas = 3;
  Enqueue(o, {w});
  const auto made = All<MakeWorkload>(UntilWorkload(o, now));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].pod_sets[0].count, 3);
}

TEST(Slices, AnEvictionStopsTheJobAsAWhole) {
  Observed o = SlicedWorld(2, 4);
  Workload next = Larger(o);
  o.quota->workloads[0].evicted = true;
  o.quota->workloads[0].eviction_reason = "Preempted";
  Enqueue(o, {o.quota->workloads[0], next});
  EXPECT_TRUE(Written(Decide(o, kT0)).stop_since);
  o.status.ledger.suspended = true;
  o.pods.clear();
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(All<DeleteWorkload>(decision).size(), 1U) << ToString(decision);
  EXPECT_EQ(All<DeleteWorkload>(decision)[0].name, "job-next");
}

// It still names the slice that it replaced before it was evicted.
TEST(Slices, OneThatWasQueuedAgainStopsTheJobUntilItIsAdmitted) {
  Observed o = SlicedWorld(2, 4);
  Workload next = Larger(o);
  next.reserved = true;
  next.grants = {{kWorkerSet, 3}};
  Enqueue(o, {next});
  EXPECT_TRUE(HeldByQuota(o));
  EXPECT_TRUE(Written(Decide(o, kT0)).stop_since);
}

}  // namespace
}  // namespace ringmaster::core
