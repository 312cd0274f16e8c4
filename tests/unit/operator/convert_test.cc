// SPDX-License-Identifier: Apache-2.0

#include "operator/control/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/training_job.h"
#include "operator/control/coordinator_options.h"

namespace ringmaster::control {
namespace {

TEST(Convert, AProgramWithTheLibraryIsAMemberLikeANativeTrainer) {
  api::TrainingJob job;
  job.spec.framework = "pytorch";
  job.spec.launch.kind = "library";
  job.spec.workers.slots = "2";
  job.spec.restart.stopSeconds = 40;
  job.spec.checkpoint.gracePeriodSeconds = 100;
  const core::Job c = FromApi(job, "uid", 1);
  EXPECT_TRUE(c.in_place && c.library);
  EXPECT_FALSE(c.programs);
  EXPECT_EQ(c.slots, 2);
  EXPECT_EQ(c.grace, seconds(145)) << "a checkpoint, then the code that follows the training";
  EXPECT_EQ(c.finish_grace, seconds(45));

  core::SetGang order;
  const rendezvous::CoordinatorOptions native = CoordinatorOptionsOf("a/b", order);
  order.library = true;
  const rendezvous::CoordinatorOptions options = CoordinatorOptionsOf("a/b", order);
  EXPECT_FALSE(options.programs.has_value());
  EXPECT_GT(options.status_deadline, native.status_deadline) << "its micro-batches may be long";
  job.spec.framework = "native";
  job.spec.launch.kind = "ranks";
  EXPECT_EQ(FromApi(job, "uid", 1).finish_grace, core::kFinishGrace);
  EXPECT_FALSE(FromApi(job, "uid", 1).library);
}

TEST(Convert, ConvertsEveryFieldThatDecisionsNeed) {
  api::TrainingJob job;
  job.metadata.name = "gpt";
  job.metadata.namespace_ = "team";
  job.spec.framework = "pytorch";
  job.spec.suspend = true;
  job.spec.workers.replicas = 8;
  job.spec.workers.min = 4;
  job.spec.workers.max = 16;
  job.spec.checkpoint.gracePeriodSeconds = 33;
  job.spec.restart.stopSeconds = 40;
  job.spec.restart.maxRestarts = 7;
  job.spec.restart.maxWithoutProgress = 2;
  job.spec.restart.backoff = {1, 9};
  job.spec.restart.rules.resize(3);
  job.spec.restart.rules[0].on.exitCodes = {3, 4};
  job.spec.restart.rules[0].action = "Fail";
  job.spec.restart.rules[1].on.messageRegex = "Xid";
  job.spec.restart.rules[1].action = "Ignore";
  job.spec.restart.rules[2].on.hang = true;
  job.spec.restart.rules[2].charge = false;
  job.spec.restart.rules[2].excludeNode = true;
  job.spec.scheduling.gang = "volcano";
  job.spec.scheduling.timeoutSeconds = 77;
  job.spec.scheduling.queue = "team-a";
  job.spec.scheduling.autoscaler = true;
  job.spec.health.nodeExclusionSeconds = 88;
  job.spec.health.startupSeconds = 11;
  job.spec.health.unreachableNodeSeconds = 12;
  job.spec.lifecycle = {13, 14, "All", {}};
  const core::Job c = FromApi(job, "uid", 5);
  EXPECT_EQ(KeyOf(job), (Key{"team", "gpt"}));
  EXPECT_EQ(c.name, "gpt");
  EXPECT_EQ(c.uid, "uid");
  EXPECT_EQ(c.spec_generation, 5);
  EXPECT_TRUE(c.in_place);
  EXPECT_TRUE(c.programs);
  EXPECT_EQ(c.stop_grace, seconds(40));
  EXPECT_TRUE(c.suspend);
  EXPECT_EQ(c.Target(), 8);
  EXPECT_EQ(c.min, 4);
  EXPECT_EQ(c.max, 16);
  EXPECT_EQ(c.grace, seconds(45)) << "the agent has stopSeconds to stop the ranks";
  EXPECT_EQ(c.max_restarts, 7);
  EXPECT_EQ(c.max_without_progress, 2);
  EXPECT_EQ(c.backoff_initial, seconds(1));
  EXPECT_EQ(c.backoff_max, seconds(9));
  ASSERT_EQ(c.rules.size(), 3U);
  EXPECT_EQ(c.rules[0].action, core::RuleAction::kFail);
  EXPECT_THAT(c.rules[0].exit_codes, testing::ElementsAre(3, 4));
  EXPECT_EQ(c.rules[1].action, core::RuleAction::kIgnore);
  EXPECT_EQ(c.rules[1].message_regex, "Xid");
  EXPECT_EQ(c.rules[2].action, core::RuleAction::kRestart);
  EXPECT_EQ(c.rules[2].hang, true);
  EXPECT_FALSE(c.rules[2].charge);
  EXPECT_TRUE(c.rules[2].exclude_node);
  EXPECT_EQ(c.gang, core::GangMode::kVolcano);
  EXPECT_EQ(c.gang_timeout, seconds(77));
  EXPECT_EQ(c.gang_queue, "team-a");
  EXPECT_TRUE(c.autoscaler);
  EXPECT_EQ(c.node_exclusion, seconds(88));
  EXPECT_EQ(c.startup_limit, seconds(11));
  EXPECT_EQ(c.unreachable_node_limit, seconds(12));
  EXPECT_EQ(c.active_deadline, seconds(13));
  EXPECT_EQ(c.ttl, seconds(14));
  EXPECT_EQ(c.clean_pods, core::CleanPods::kAll);
}

// A condition that is lost on the way makes a rule match failures that it is not about.
TEST(Convert, ARuleHasEachOfItsConditions) {
  api::TrainingJob job;
  job.spec.framework = "pytorch";
  auto& rules = job.spec.restart.rules;
  rules.resize(5);
  rules[0].on.exitCodes = {3, 4};
  rules[1].on.nodeUnreachable = false;
  rules[2].on.hang = true;
  rules[3].on.podCondition = "DisruptionTarget";
  rules[4].on.messageRegex = "Xid";
  const core::Job c = FromApi(job, "uid", 1);
  std::vector<core::Rule> want(5);
  want[0].exit_codes = {3, 4};
  want[1].node_unreachable = false;
  want[2].hang = true;
  want[3].pod_condition = "DisruptionTarget";
  want[4].message_regex = "Xid";
  EXPECT_THAT(c.rules, testing::ElementsAreArray(want));
}

TEST(Convert, AFinishedJobStaysUnlessItsSpecLimitsItsTime) {
  api::TrainingJob job;
  job.spec.framework = "pytorch";
  EXPECT_EQ(FromApi(job, "uid", 1).ttl, std::nullopt);
  job.spec.lifecycle.ttlSecondsAfterFinished = 0;
  EXPECT_EQ(FromApi(job, "uid", 1).ttl, seconds(0));
}

}  // namespace
}  // namespace ringmaster::control
