// SPDX-License-Identifier: Apache-2.0

// Jobs that ask for the workers above their minimum by Workloads that Kueue can take back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/operator/kueue_worlds.h"

namespace ringmaster::core {
namespace {

using testing::HasSubstr;

constexpr int32_t kMin = 2;

Observed World(int32_t running, int32_t replicas) {
  Observed o = RunningWorld(running);
  o.job.surplus = true;
  o.job.min = kMin;
  o.job.replicas = replicas;
  o.order->min = kMin;
  o.prepared->min = kMin;
  return o;
}

Workload Base(const Observed& o) { return Admitted(o, kMin); }

Workload Surplus(int32_t number, int32_t asked, int32_t granted) {
  Workload w;
  w.name = "job-more-" + std::to_string(number);
  w.uid = "uid-" + w.name;
  w.revision = 9;
  w.queue = "queue";
  w.surplus = number;
  w.pod_sets = {{kWorkerSet, asked, asked > 1 ? 1 : 0}};
  w.held = true;
  if (granted == 0) return w;
  w.reserved = w.admitted = true;
  w.grants = {{kWorkerSet, granted}};
  w.pods_ready = PodsReady::kStarted;
  return w;
}

// Carries out decisions until one has an action A, which is returned; others of these kinds are collected.
template <class A>
std::vector<A> Next(Observed& o) {
  for (int i = 0; i < 30; ++i) {
    const Time now = kT0 + seconds(i);
    const Decision decision = Decide(o, now);
    std::vector<A> found = All<A>(decision);
    if (!found.empty()) return found;
    Obey(o, decision, now);
    LimitToQuota(o);
  }
  return {};
}

TEST(Surplus, ANewJobAsksForItsMinimum) {
  Observed o = NewQueued(6);
  o.job.surplus = true;
  o.job.min = kMin;
  const auto made = Next<MakeWorkload>(o);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, kMin}}));
  EXPECT_EQ(made[0].surplus, 0);
}

TEST(Surplus, AJobThatRunsAsksForTheOthers) {
  Observed o = World(kMin, 6);
  Enqueue(o, {Base(o)});
  const auto made = Next<MakeWorkload>(o);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].name, "");
  EXPECT_EQ(made[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 4, 1}}));
  EXPECT_EQ(made[0].surplus, 1);

  Enqueue(o, {Base(o), Surplus(1, 4, 0)});
  o.quota->workloads[1].waits_for = "insufficient quota";
  EXPECT_EQ(o.job.granted, kMin);
  EXPECT_TRUE(Next<MakeWorkload>(o).empty());
  EXPECT_THAT(GrowthText(o), HasSubstr("runs with 2 of 6 workers, and waits for more: insufficient quota"));
  // The request follows the spec.
  o.job.replicas = 4;
  ASSERT_EQ(Next<MakeWorkload>(o).size(), 1U);
  EXPECT_EQ(Next<MakeWorkload>(o)[0].name, "job-more-1");
  EXPECT_EQ(Next<MakeWorkload>(o)[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 2, 1}}));
  o.job.replicas = kMin;
  ASSERT_EQ(Next<DeleteWorkload>(o).size(), 1U);
  EXPECT_EQ(Next<DeleteWorkload>(o)[0].name, "job-more-1");
}

// Kueue's times are in seconds: of two Workloads of the same second it might take back the first one.
TEST(Surplus, IsAskedForSomeTimeAfterTheMinimumRuns) {
  Observed o = World(kMin, 6);
  Enqueue(o, {Base(o)});
  for (int i = 0; i < 5; ++i) Obey(o, Decide(o, kT0 + milliseconds(100)), kT0 + milliseconds(100));
  const Decision early = Decide(o, kT0 + milliseconds(1900));
  EXPECT_TRUE(All<MakeWorkload>(early).empty());
  EXPECT_LE(early.requeue_at, kT0 + seconds(2));
  EXPECT_EQ(Next<MakeWorkload>(o).size(), 1U);
}

TEST(Surplus, WorkersStartAsKueueAdmitsThem) {
  Observed o = World(kMin, 6);
  Enqueue(o, {Base(o), Surplus(1, 4, 3)});
  EXPECT_EQ(o.job.granted, 5);
  const auto rest = Next<MakeWorkload>(o);
  EXPECT_EQ(o.pods.size(), 5U);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].surplus, 2);
  EXPECT_EQ(rest[0].pod_sets, (std::vector<PodSet>{{kWorkerSet, 1, 0}}));
  Enqueue(o, {Base(o), Surplus(1, 4, 3), Surplus(2, 1, 1)});
  Settle(o, kT0 + seconds(40));
  EXPECT_EQ(o.pods.size(), 6U);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Surplus, AnEvictedOneShrinksTheJobInPlace) {
  Observed o = World(6, 6);
  Workload surplus = Surplus(1, 4, 4);
  surplus.evicted = true;
  surplus.eviction_reason = "Preempted";
  Enqueue(o, {Base(o), surplus});
  EXPECT_EQ(o.job.granted, kMin);
  EXPECT_FALSE(HeldByQuota(o));
  const auto change = Next<SetWorkloadStatus>(o);
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].name, surplus.name);
  EXPECT_EQ(change[0].change, Change::kClear);
  EXPECT_EQ(change[0].reason, "Preempted");
  EXPECT_EQ(o.pods.size(), static_cast<size_t>(kMin)) << "only when the workers are gone";
  EXPECT_EQ(o.status.ledger.attempt, 1);
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
}

TEST(Surplus, OfTwoTheOtherOneKeepsItsWorkers) {
  Observed o = World(6, 6);
  Workload first = Surplus(1, 3, 3);
  first.evicted = true;
  Enqueue(o, {Base(o), first, Surplus(2, 1, 1)});
  EXPECT_EQ(o.job.granted, 3);
  const auto change = Next<SetWorkloadStatus>(o);
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].name, first.name);
  EXPECT_EQ(o.pods.size(), 3U);
}

TEST(Surplus, WithoutItsMinimumTheJobStopsAsAWhole) {
  Observed o = World(6, 6);
  Workload base = Base(o);
  base.evicted = true;
  base.eviction_reason = "Preempted";
  Enqueue(o, {base, Surplus(1, 4, 4)});
  EXPECT_TRUE(HeldByQuota(o));
  const auto removed = Next<DeleteWorkload>(o);
  EXPECT_TRUE(o.pods.empty());
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].name, "job-more-1");
  Enqueue(o, {base});
  const auto change = Next<SetWorkloadStatus>(o);
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].change, Change::kClear);
}

// A pod of a flavor that does not exist would get no node selector.
TEST(Surplus, InAFlavorThatDoesNotExistStartsNoWorkers) {
  Observed o = World(kMin, 7);
  Workload lost = Surplus(1, 4, 4);
  lost.missing_flavor = "spot";
  lost.pods_ready = PodsReady::kUnreported;
  // Workers belong to the surpluses in their order.
  const Workload last = Surplus(2, 1, 1);
  Enqueue(o, {Base(o), last, lost});
  EXPECT_EQ(o.job.granted, kMin);
  EXPECT_EQ(SurplusesOf(o).admitted, 5);
  EXPECT_EQ(GrowthText(o),
            "runs with 2 of 7 workers: Kueue admitted more to ResourceFlavor spot, which does not exist; "
            "create it");
  EXPECT_TRUE(Next<CreatePod>(o).empty());
  EXPECT_TRUE(Next<DeleteWorkload>(o).empty()) << "it keeps its quota";
  for (const SetWorkloadStatus& change : Next<SetWorkloadStatus>(o)) {
    EXPECT_EQ(change.change, Change::kReport);
    EXPECT_NE(change.pods_ready, PodsReady::kStarted) << change.name;
  }
  lost.missing_flavor.clear();
  lost.pods_ready = PodsReady::kStarted;
  Enqueue(o, {Base(o), last, lost});
  Settle(o, kT0 + seconds(40));
  EXPECT_EQ(o.pods.size(), 7U);
  // Workers that exist run on.
  lost.missing_flavor = "spot";
  Enqueue(o, {Base(o), last, lost});
  EXPECT_EQ(o.job.granted, 7);
  EXPECT_EQ(GrowthText(o), "");
  Settle(o, kT0 + seconds(80));
  EXPECT_EQ(o.pods.size(), 7U);
}

TEST(Surplus, InAFlavorThatDoesNotExistIsGivenBackWhenTheJobShrinks) {
  Observed o = World(kMin, kMin);
  Workload lost = Surplus(1, 4, 4);
  lost.missing_flavor = "spot";
  Enqueue(o, {Base(o), lost});
  EXPECT_EQ(GrowthText(o), "");
  const auto removed = Next<DeleteWorkload>(o);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].name, lost.name);
}

TEST(Surplus, ADeactivatedOneSaysHowToActivateIt) {
  Observed o = World(kMin, 6);
  Workload surplus = Surplus(1, 4, 0);
  surplus.active = false;
  surplus.waits_for = "The workload is deactivated";
  surplus.evicted = true;
  surplus.eviction_reason = "Deactivated";
  surplus.eviction_message = "exceeding the maximum execution time";
  Enqueue(o, {Base(o), surplus});
  EXPECT_EQ(GrowthText(o),
            "runs with 2 of 6 workers, and waits for more: exceeding the maximum execution time; set "
            "spec.active of Workload job-more-1 to true to queue it again");
  EXPECT_TRUE(Next<MakeWorkload>(o).empty());
}

TEST(Surplus, GivesBackWhatTheJobDoesNotUse) {
  Observed o = World(6, 3);
  Enqueue(o, {Base(o), Surplus(1, 4, 4)});
  const auto change = Next<SetWorkloadStatus>(o);
  ASSERT_EQ(change.size(), 1U);
  EXPECT_EQ(change[0].change, Change::kGiveBack);
  EXPECT_EQ(change[0].name, "job-more-1");
  EXPECT_EQ(change[0].unused, (std::vector<Grant>{{kWorkerSet, 3}}));
  EXPECT_EQ(o.pods.size(), 3U) << "only when the workers are gone";
  o.job.replicas = kMin;
  const auto removed = Next<DeleteWorkload>(o);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(o.pods.size(), static_cast<size_t>(kMin));
}

// Of a build before there were surpluses, or after the spec has changed.
TEST(Surplus, AJobWithQuotaForAllOfItsWorkersNeedsNone) {
  Observed o = World(6, 6);
  Enqueue(o, {Admitted(o, 6)});
  EXPECT_TRUE(Next<MakeWorkload>(o).empty());
  EXPECT_EQ(o.pods.size(), 6U);
}

}  // namespace
}  // namespace ringmaster::core
