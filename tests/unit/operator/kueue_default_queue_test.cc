// SPDX-License-Identifier: Apache-2.0

// Jobs without a label in a namespace that has, or had, the LocalQueue `default`.
#include <gtest/gtest.h>

#include "tests/unit/operator/kueue_worlds.h"

namespace ringmaster::core {
namespace {

// A job without the label, in a namespace with or without a LocalQueue `default`.
void ChooseFor(Observed& o, bool has_default, std::vector<Workload> workloads = {}) {
  Enqueue(o, std::move(workloads));
  o.quota->queue.clear();
  ChooseQueue(o, has_default);
  LimitToQuota(o);
}

TEST(DefaultQueue, IsOfAJobWithoutALabelThatHasNotStarted) {
  Observed o = NewQueued(3);
  ChooseFor(o, false);
  EXPECT_EQ(o.quota->queue, "");
  EXPECT_FALSE(HeldByQuota(o));
  ChooseFor(o, true);
  EXPECT_TRUE(HeldByQuota(o));
  const auto made = All<MakeWorkload>(Decide(o, kT0));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].queue, "default");

  Enqueue(o);
  ChooseQueue(o, true);
  EXPECT_EQ(o.quota->queue, "queue") << "the label counts";
  EXPECT_FALSE(o.quota->defaulted);
}

TEST(DefaultQueue, NeverStopsAJobThatRuns) {
  Observed o = RunningWorld();
  ChooseFor(o, true);
  Settle(o, kT0);
  EXPECT_EQ(o.quota->queue, "");
  EXPECT_EQ(o.pods.size(), 2U);
  EXPECT_FALSE(o.status.ledger.stop_since);

  // The pods exist, and the status does not say so yet.
  Observed begun = NewWorld();
  begun.status.ledger.attempt = 1;
  begun.pods.push_back(MakePod(1, 0));
  ChooseFor(begun, true);
  EXPECT_EQ(begun.quota->queue, "");
  EXPECT_FALSE(HeldByQuota(begun));
}

TEST(DefaultQueue, TheWorkloadRecordsTheChoice) {
  Observed o = RunningWorld();
  Workload w = Admitted(o, 2);
  w.queue = "default";
  ChooseFor(o, false, {w});
  EXPECT_EQ(o.quota->queue, "default") << "its LocalQueue was deleted";
  Settle(o, kT0);
  EXPECT_EQ(o.pods.size(), 2U) << "it runs on";
  EXPECT_EQ(o.status.ledger.attempt, 1);

  // It is evicted, and waits: it must not start as a job without a queue.
  Observed waits = RunningWorld();
  waits.status.ledger.suspended = true;
  waits.pods.clear();
  w = Waiting(waits);
  w.queue = "default";
  w.waits_for = "LocalQueue default doesn't exist";
  ChooseFor(waits, false, {w});
  Decision decision = Decide(waits, kT0);
  const Condition admitted = Of(decision, ConditionType::kAdmitted);
  EXPECT_EQ(admitted.reason, Reason::kNoQueue);
  EXPECT_NE(admitted.message.find("name another one by the label kueue.x-k8s.io/queue-name"),
            std::string::npos)
      << admitted.message;
  Settle(waits, kT0);
  EXPECT_TRUE(waits.pods.empty());
}

// Without its label it waits no more in the queue that the label named.
TEST(DefaultQueue, AWorkloadOfAnotherQueueIsWithdrawnFirst) {
  Observed o = NewQueued();
  ChooseFor(o, true, {Waiting(o)});
  EXPECT_EQ(o.quota->queue, "");
  EXPECT_EQ(All<DeleteWorkload>(Decide(o, kT0)).size(), 1U);
}

TEST(DefaultQueue, ASuspendedJobAsksWhenItResumes) {
  Observed o = RunningWorld();
  o.status.ledger.suspended = true;
  ChooseFor(o, true);
  EXPECT_EQ(o.quota->queue, "") << "its pods have not ended yet";
  o.pods.clear();
  ChooseFor(o, true);
  EXPECT_EQ(o.quota->queue, "default");
  EXPECT_EQ(All<MakeWorkload>(Decide(o, kT0)).size(), 1U);
}

}  // namespace
}  // namespace ringmaster::core
