// SPDX-License-Identifier: Apache-2.0

// Nodes that are lost: when their workers are given up, and whether new ones may use them.
#include <gtest/gtest.h>

#include "operator/core/decide/rules.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(LostNodes, AnUnreachableNodeFailsItsPodsAfterTheLimit) {
  Observed o = RunningWorld(2);
  o.pods[1].unreachable_since = kT0;
  o.pods[1].node = "gpu-7";
  Settle(o, kT0 + seconds(59));
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  const Ledger ledger = Written(Decide(o, kT0 + seconds(60)));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kNodeUnreachable);
  EXPECT_EQ(ledger.restarts.charged, 0);
  Rule rule;
  rule.node_unreachable = true;
  rule.action = RuleAction::kFail;
  o.job.rules = {rule};
  EXPECT_EQ(Written(Decide(o, kT0 + seconds(60))).outcome, Outcome::kFailed);
}

TEST(LostNodes, AWorkerThatTheCoordinatorHearsIsNotLostWithItsNode) {
  Observed o = RunningWorld(2);
  o.pods[1].unreachable_since = kT0;
  o.pods[1].node = "gpu-7";
  o.report->heard_pods = {"job-1-0", "job-1-1"};
  const Time later = kT0 + 10 * o.job.unreachable_node_limit;
  Settle(o, later);
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  // The API server has not heard the node for long enough already.
  o.report->heard_pods = {"job-1-0"};
  EXPECT_EQ(Written(Decide(o, later)).last_failure->cause, Cause::kNodeUnreachable);
}

TEST(LostNodes, AContainerThatItsNodeLostIsNotCharged) {
  Observed o = RunningWorld(2);
  o.pods[1] = Ended(1, 255);
  o.pods[1].lost = true;
  o.pods[1].node = "gpu-7";
  const Ledger ledger = Written(Decide(o, kT0));
  EXPECT_EQ(ledger.last_failure->cause, Cause::kLostByNode);
  EXPECT_EQ(ledger.restarts.total, 1);
  EXPECT_EQ(ledger.restarts.charged, 0);
  ASSERT_EQ(ledger.excluded.size(), 1U);
  EXPECT_EQ(ledger.excluded[0].name, "gpu-7");
  o.pods[1].lost = false;
  EXPECT_EQ(Written(Decide(o, kT0)).restarts.charged, 1);
}

TEST(LostNodes, OtherNodesArePreferredToALostOneForAWhile) {
  Observed o = RunningWorld(2);
  o.pods[1].node = "gpu-7";
  o.pods[1].unreachable_since = kT0;
  const Time lost = kT0 + o.job.unreachable_node_limit;
  Obey(o, Decide(o, lost), lost);
  const ExcludedNode expected{"gpu-7", "NodeUnreachable", lost + o.job.node_exclusion,
                              NodeEffect::kPreferNoSchedule};
  EXPECT_EQ(o.status.ledger.excluded, std::vector<ExcludedNode>{expected});
  EXPECT_EQ(o.status.ledger.restarts.charged, 0);
  const auto removed = All<DeletePod>(Decide(o, lost));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_TRUE(removed[0].force());
  Obey(o, Decide(o, lost), lost);
  const auto created = All<CreatePod>(Decide(o, lost));
  ASSERT_EQ(created.size(), 1U);
  // The cluster may have no other node when it is back.
  EXPECT_TRUE(created[0].excluded_nodes.empty());
  EXPECT_EQ(created[0].avoided_nodes, std::vector<std::string>{"gpu-7"});
  Settle(o, lost);
  Settle(o, expected.until);
  EXPECT_TRUE(o.status.ledger.excluded.empty());
}

TEST(LostNodes, ALostNodeStaysExcludedByTheRuleThatExcludedIt) {
  Observed o = RunningWorld(2);
  o.pods[1].node = "gpu-7";
  o.pods[1].unreachable_since = kT0;
  const Time lost = kT0 + o.job.unreachable_node_limit;
  const ExcludedNode by_rule{"gpu-7", "Exit", lost + seconds(10)};
  o.status.ledger.excluded = {by_rule};
  EXPECT_EQ(Written(Decide(o, lost)).excluded, std::vector<ExcludedNode>{by_rule});
  Rule rule;
  rule.node_unreachable = true;
  rule.exclude_node = true;
  o.job.rules = {rule};
  const ExcludedNode expected{"gpu-7", "NodeUnreachable", lost + o.job.node_exclusion};
  EXPECT_EQ(Written(Decide(o, lost)).excluded, std::vector<ExcludedNode>{expected});
}

TEST(LostNodes, PodsOnALostNodeDoNotDelayTheDrain) {
  Observed o = RunningWorld(2, false);
  o.status.ledger.attempt = 2;
  o.status.ledger.ready_since.reset();
  o.pods[1].unreachable_since = kT0;
  const Time limit = kT0 + o.job.unreachable_node_limit;
  for (Pod& pod : o.pods) pod.delete_by = limit + seconds(1);
  EXPECT_TRUE(All<DeletePod>(Decide(o, limit - o.job.grace)).empty());
  const auto removed = All<DeletePod>(Decide(o, limit));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].name, "job-1-1");
  EXPECT_TRUE(removed[0].force());
}

}  // namespace
}  // namespace ringmaster::core
