// SPDX-License-Identifier: Apache-2.0

#include "cli/run/user_program.h"

#include <gtest/gtest.h>

#include "api/load.h"

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
      "          args: [--rate, $(RATE), $$(RATE), $(OTHER)]\n"
      "          env: [{name: RATE, value: \"0.1\"}, {name: ARGS, value: \"--rate=$(RATE) $$(RATE) "
      "$(LATER)\"},\n"
      "                {name: LATER, value: x}]\n");
  EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front().ToString();
  return std::move(loaded.job);
}

TEST(UserProgram, IsTheCommandOfTheContainerWithItsVariables) {
  for (const char* kind : {"ranks", "library"}) {
    std::vector<std::string> notes;
    const auto programs = ReadUserPrograms(JobOf(kind), &notes);
    ASSERT_TRUE(programs.ok()) << programs.error().message;
    EXPECT_EQ(programs->workers.command,
              (std::vector<std::string>{"python", "train.py", "--rate", "0.1", "$(RATE)", "$(OTHER)"}));
    EXPECT_EQ(programs->workers.environment.at("RATE"), "0.1");
    EXPECT_EQ(programs->workers.environment.at("ARGS"), "--rate=0.1 $(RATE) $(LATER)");
    EXPECT_TRUE(programs->workers.folder.starts_with("/"));
    EXPECT_EQ(notes.size(), 1u) << "what does not apply on one machine";
  }
}

TEST(UserProgram, AContainerThatStartsAloneNeedsACluster) {
  std::vector<std::string> notes;
  const auto programs = ReadUserPrograms(JobOf("none"), &notes);
  ASSERT_FALSE(programs.ok());
  EXPECT_TRUE(programs.error().message.starts_with("spec.launch.kind: none needs a cluster"))
      << programs.error().message;
}

}  // namespace
}  // namespace ringmaster::cli
