// SPDX-License-Identifier: Apache-2.0

// --set spec.path=value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/load.h"
#include "base/file.h"

namespace ringmaster::api {
namespace {

using ::testing::HasSubstr;

Loaded With(const std::vector<std::pair<std::string, std::string>>& sets) {
  const auto text = ReadFile("examples/gpt-text.yaml");
  EXPECT_TRUE(text.ok());
  return LoadYaml(text.ok() ? *text : std::string(), sets);
}

TrainingJob Good(const std::vector<std::pair<std::string, std::string>>& sets) {
  Loaded loaded = With(sets);
  for (const Problem& problem : loaded.problems) ADD_FAILURE() << problem.ToString();
  return std::move(loaded.job);
}

// Returns the text of the only problem.
std::string Bad(const std::string& path, const std::string& value) {
  const Loaded loaded = With({{path, value}});
  EXPECT_EQ(loaded.problems.size(), 1u) << path << "=" << value;
  return loaded.problems.empty() ? "" : loaded.problems[0].ToString();
}

TEST(Set, ReplacesAndAdds) {
  EXPECT_EQ(Good({{"spec.workers.replicas", "3"}}).spec.workers.replicas, 3);
  EXPECT_EQ(Good({{"spec.workers.replicas", "3"}, {"spec.workers.replicas", "5"}}).spec.workers.replicas, 5);
  EXPECT_EQ(Good({{"spec.scheduling.topology.required", "rack"}}).spec.scheduling.topology.required, "rack");
  EXPECT_EQ(Good({{"spec.suspend", "true"}}).spec.suspend, true);
  EXPECT_EQ(Good({{"spec.suspend", "yes"}}).spec.suspend, true);
  EXPECT_EQ(Good({{"metadata.labels.team", "nlp"}}).metadata.labels.at("team"), "nlp");
  EXPECT_EQ(Good({{"metadata.labels[example.com/team]", "7"}}).metadata.labels.at("example.com/team"), "7");
  EXPECT_EQ(Good({{"spec.workers.template.spec.nodeSelector.a", "x"}}).spec.workers.template_,
            (Json{{"spec", {{"nodeSelector", {{"a", "x"}}}}}}));
}

TEST(Set, TextFieldsNeedNoQuotes) {
  EXPECT_EQ(Good({{"spec.training.optimizer.learningRate", "0.01"}}).spec.training->optimizer.learningRate,
            "0.01");
  EXPECT_EQ(
      Good({{"spec.training.optimizer.learningRate", "\"1e-3\""}}).spec.training->optimizer.learningRate,
      "1e-3");
  EXPECT_EQ(Good({{"spec.training.optimizer.clipNorm", "0"}}).spec.training->optimizer.clipNorm, "0");
  EXPECT_EQ(Good({{"spec.training.data.path", "/my text: a #1"}}).spec.training->data.path, "/my text: a #1");
  EXPECT_EQ(Good({{"spec.training.data.path", "012"}}).spec.training->data.path, "012");
  EXPECT_EQ(Good({{"spec.workers.slots", "2"}}).spec.workers.slots, "2");
  EXPECT_EQ(Good({{"spec.health.stepSeconds", "0"}}).spec.health.stepSeconds, "0");
}

TEST(Set, ListsAndObjectsAreYaml) {
  EXPECT_EQ(Good({{"spec.network.networks", "[a, 7, yes]"}}).spec.network.networks,
            (std::vector<std::string>{"a", "7", "yes"}));
  EXPECT_EQ(
      Good({{"spec.network.networks[0]", "a"}, {"spec.network.networks[1]", "b"}}).spec.network.networks,
      (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Good({{"spec.training.optimizer", "{kind: sgd, learningRate: 0.5}"}})
                .spec.training->optimizer.learningRate,
            "0.5");
  EXPECT_EQ(
      Good({{"spec.restart.rules[0].when.exitCodes", "[64]"}, {"spec.restart.rules[0].action", "Ignore"}})
          .spec.restart.rules.at(0)
          .action,
      "Ignore");
}

TEST(Set, NullRemovesTheField) {
  EXPECT_FALSE(Good({{"spec.workers.min", "null"}}).spec.workers.min.has_value());
  EXPECT_EQ(Good({{"spec.training.optimizer.clipNorm", "null"}}).spec.training->optimizer.clipNorm, "0");
}

TEST(Set, ProblemsHaveThePathOfTheFlag) {
  EXPECT_EQ(Bad("spec.workers.replica", "3"),
            "spec.workers.replica: unknown field; did you mean \"replicas\"?");
  EXPECT_EQ(Bad("spec.worker.replicas", "3"),
            "spec.worker.replicas: unknown field; did you mean \"workers\"?");
  EXPECT_EQ(Bad("learningRate", "1"),
            "learningRate: unknown field; did you mean spec.training.optimizer.learningRate?");
  EXPECT_EQ(Bad("spec.framework.x", "3"), "spec.framework.x: framework has no fields");
  EXPECT_EQ(Bad("spec.workers.replicas", "four"), "spec.workers.replicas: must be an integer (got \"four\")");
  EXPECT_EQ(Bad("spec.workers.replicas", ""), "spec.workers.replicas: must be an integer (got \"\")");
  EXPECT_THAT(Bad("spec.workers.replicas", "08"),
              HasSubstr("spec.workers.replicas: plain 08 begins like an octal number and is none: write 8"));
  EXPECT_THAT(Bad("spec.network.networks", "[a"), HasSubstr("spec.network.networks: not valid YAML"));
  EXPECT_THAT(Bad("spec.network.networks.x", "a"), HasSubstr("networks is a list: write [0]"));
  EXPECT_THAT(Bad("spec.network.networks[3]", "a"),
              HasSubstr("[3] is neither an entry of the list nor the next one"));
  EXPECT_THAT(Bad("spec.network.networks[x]", "a"), HasSubstr("[x] is neither"));
  EXPECT_THAT(Bad("status.phase", "Running"),
              HasSubstr("status.phase: the status is written by the operator"));
  for (const char* path :
       {"", ".", "spec.", ".spec", "spec..workers", "spec[", "spec[]", "[0]", "spec.workers]x["}) {
    EXPECT_FALSE(With({{path, "1"}}).problems.empty()) << path;
  }
  EXPECT_EQ(Bad("spec.workers.max", "3"),
            "spec.workers.max: must be at least spec.workers.replicas (got 3 < 4)");
}

}  // namespace
}  // namespace ringmaster::api
