// SPDX-License-Identifier: Apache-2.0

#include "cli/run/preflight.h"

#include <gtest/gtest.h>

#include "api/load.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

api::TrainingJob JobOf(const std::string& kind) {
  api::Loaded loaded = api::LoadYaml(
      "apiVersion: ringmaster.dev/v1alpha1\n"
      "kind: TrainingJob\n"
      "metadata: {name: own}\n"
      "spec:\n"
      "  framework: pytorch\n"
      "  launch: {kind: " +
      kind +
      "}\n"
      "  workers:\n"
      "    replicas: 2\n"
      "    template:\n"
      "      spec:\n"
      "        containers:\n"
      "        - name: worker\n"
      "          command: [python, train.py]\n"
      "          args: [--rate, $(RATE)]\n"
      "          env: [{name: RATE, value: \"0.1\"}]\n");
  EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front().ToString();
  return std::move(loaded.job);
}

TEST(Preflight, AProgramWithTheLibraryIsATrainerWithACommand) {
  const auto plan = MakePlan(JobOf("library"), "checkpoints");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_TRUE(plan->library.has_value());
  EXPECT_FALSE(plan->programs.has_value());
  EXPECT_EQ(plan->library->command, (std::vector<std::string>{"python", "train.py", "--rate", "0.1"}));
  EXPECT_EQ(plan->library->environment.at("RATE"), "0.1");
  EXPECT_TRUE(plan->job.spec.checkpoint.path.starts_with("/")) << "it runs in another folder";
  EXPECT_TRUE(plan->fingerprint.empty()) << "only the program knows its model";
}

TEST(Preflight, RanksAreProgramsThatStartTogether) {
  const auto plan = MakePlan(JobOf("ranks"), "checkpoints");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->programs.has_value());
  EXPECT_FALSE(plan->library.has_value());
}

TEST(Preflight, WithoutCheckpointsAJobStartsAtStepZero) {
  const TempFolder folder;
  std::vector<std::string> notes;
  EXPECT_EQ(FindResumeStep(folder.path() + "/none", "", &notes).value(), 0);
  EXPECT_TRUE(notes.empty());
}

TEST(Preflight, ContainersThatStartAloneNeedACluster) {
  const auto plan = MakePlan(JobOf("none"), "checkpoints");
  ASSERT_FALSE(plan.ok());
  EXPECT_TRUE(plan.error().message.starts_with("spec.launch.kind: none needs a cluster"))
      << plan.error().message;
}

}  // namespace
}  // namespace ringmaster::cli
