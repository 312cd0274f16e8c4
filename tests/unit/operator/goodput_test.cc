// SPDX-License-Identifier: Apache-2.0

// Time accounting, and the effect of wrong clocks.
#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(Goodput, QueueStartupAndWorkAreAccountedSeparately) {
  Observed o = NewWorld(2);
  o.provider = GangProvider::kGate;
  o.job.min = 2;
  o.fit = {0, "nothing is there"};
  Settle(o, kT0);
  o.fit = {2, ""};
  const Time released = kT0 + seconds(30);
  Settle(o, released);
  const Time first_step = released + seconds(20);
  o.report.emplace();
  o.report->phase = rendezvous::GangPhase::kActive;
  o.report->step = 1;
  for (const Pod& pod : o.pods) o.report->live_pods.push_back(pod.name);
  Settle(o, first_step);
  o.report->step = 50;
  Settle(o, first_step + seconds(100));
  const Goodput& goodput = o.status.ledger.goodput;
  EXPECT_EQ(goodput.queue, seconds(30));
  EXPECT_EQ(goodput.startup, seconds(20));
  EXPECT_EQ(goodput.productive, seconds(100));
  EXPECT_EQ(goodput.restart, seconds(0));
}

TEST(Goodput, FailuresCostRestartTimeAndRedoneSteps) {
  Observed o = RunningWorld(2, false);
  o.job.backoff_initial = seconds(0);
  o.pods[1] = Ended(1, 1);
  Obey(o, Decide(o, kT0 + seconds(60)), kT0 + seconds(60));
  EXPECT_EQ(o.status.ledger.goodput.productive, seconds(60));
  EXPECT_EQ(o.status.ledger.time_accounting, TimeAccounting::kRestart);
  Settle(o, kT0 + seconds(70));
  EXPECT_EQ(o.status.ledger.goodput.restart, seconds(10));
  EXPECT_EQ(o.status.ledger.time_accounting, TimeAccounting::kProductive);

  Observed native = RunningWorld(2);
  native.report->step = 90;
  native.report->lost_steps = 10;
  native.report->phase = rendezvous::GangPhase::kForming;
  Settle(native, kT0 + seconds(100));
  EXPECT_EQ(native.status.ledger.goodput.redone, seconds(10));
  EXPECT_EQ(native.status.ledger.goodput.productive, seconds(90));
  Settle(native, kT0 + seconds(200));
  EXPECT_EQ(native.status.ledger.goodput.redone, seconds(10));  // once
}

TEST(Goodput, SuspendedTimeIsNotAccounted) {
  Observed o = RunningWorld(2, false);
  o.job.suspend = true;
  Settle(o, kT0 + seconds(10));
  Settle(o, kT0 + seconds(5000));
  o.job.suspend = false;
  Settle(o, kT0 + seconds(5000));
  const Goodput& g = o.status.ledger.goodput;
  EXPECT_EQ(g.productive + g.queue + g.startup + g.restart + g.redone, seconds(10));
}

TEST(Clock, FutureTimesAreClampedToNow) {
  Observed o = RunningWorld(2);
  o.status.ledger.not_before = kT0 + seconds(50'000);
  o.status.ledger.active_since = kT0 + seconds(50'000);
  o.status.ledger.excluded = {{"n", "NodeUnreachable", kT0 + 2 * o.job.node_exclusion}};
  const Ledger after = Written(Decide(o, kT0));
  EXPECT_EQ(after.active_since, kT0);
  EXPECT_EQ(after.not_before, kT0 + o.job.backoff_max);
  EXPECT_EQ(after.excluded[0].until, kT0 + o.job.node_exclusion);
  Obey(o, Decide(o, kT0), kT0);
  EXPECT_NE(Decide(o, kT0).reason, "the clock was set back");
}

TEST(Clock, AFutureCompletionTimeDoesNotKeepPodsAlive) {
  Observed o = RunningWorld(2);
  o.report->phase = rendezvous::GangPhase::kFinished;
  Obey(o, Decide(o, kT0), kT0);
  o.status.ledger.completion_time = kT0 + seconds(3600);
  Settle(o, kT0);
  EXPECT_TRUE(o.pods.empty());
}

TEST(Clock, SmallClockSkewIsIgnored) {
  Observed o = RunningWorld(2);
  o.status.ledger.active_since = kT0 + seconds(2);
  EXPECT_NE(Decide(o, kT0).reason, "the clock was set back");
}

}  // namespace
}  // namespace ringmaster::core
