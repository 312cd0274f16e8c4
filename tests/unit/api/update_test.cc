// SPDX-License-Identifier: Apache-2.0

// Which fields may change: the table in updates.json, which e2e/crd/validation_test.py also runs on a real
// API server.
#include "api/update.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"

namespace ringmaster::api {
namespace {

std::string Texts(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += problem.ToString() + "\n";
  return text;
}

class Updates : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto text = ReadFile("tests/unit/api/updates.json");
    ASSERT_TRUE(text.ok()) << text.error().message;
    const auto table = ParseJson(*text);
    ASSERT_TRUE(table.ok()) << table.error().message;
    table_ = *table;
  }

  // Returns the job of a row before the change.
  Json Start(const Json& change) const {
    const Json& state = table_["states"][change["state"].get<std::string>()];
    Json job = {{"apiVersion", "ringmaster.dev/v1alpha1"},
                {"kind", "TrainingJob"},
                {"metadata", {{"name", "job"}}},
                {"spec", table_["jobs"][change["job"].get<std::string>()]},
                {"status", state["status"]}};
    job["spec"]["suspend"] = state["suspend"];
    return job;
  }

  Json table_;
};

TEST_F(Updates, HaveTheProblemsOfTheTable) {
  EXPECT_GE(table_["changes"].size(), 30u);
  for (const Json& change : table_["changes"]) {
    SCOPED_TRACE(change["name"].get<std::string>());
    Json job = Start(change);
    const Loaded old = FromJson(job);
    ASSERT_TRUE(old.problems.empty()) << Texts(old.problems);
    job.merge_patch(change["patch"]);
    const Loaded changed = FromJson(job);
    const auto problems = changed.problems.empty() ? ValidateUpdate(old.job, changed.job) : changed.problems;
    const Json& expected = change["problems"];
    EXPECT_EQ(problems.size(), expected.size()) << Texts(problems);
    for (const Problem& problem : problems) {
      ASSERT_TRUE(expected.contains(problem.path)) << Texts(problems);
      const auto text = expected[problem.path].get<std::string>();
      EXPECT_NE(problem.message.find(text), std::string::npos) << Texts(problems);
    }
  }
}

TEST(GuardedFields, CoverAllFieldsThatMayNotAlwaysChange) {
  std::string paths;
  for (const GuardedField& field : GuardedFields())
    paths += field.path + (field.never ? " never" : "") + "\n";
  EXPECT_EQ(paths,
            "spec.framework never\n"
            "spec.managedBy never\n"
            "spec.workers.slots\n"
            "spec.workers.template\n"
            "spec.roles\n"
            "spec.launch\n"
            "spec.training.model never\n"
            "spec.training.data\n"
            "spec.training.batch\n"
            "spec.training.optimizer\n"
            "spec.training.steps\n"
            "spec.training.epochs\n"
            "spec.training.device\n"
            "spec.training.precision\n"
            "spec.training.numerics\n"
            "spec.training.seed never\n"
            "spec.training.validateEverySteps\n"
            "spec.training.validateSamples\n"
            "spec.checkpoint\n"
            "spec.network\n"
            "spec.scheduling.gang\n"
            "spec.scheduling.queue\n"
            "spec.scheduling.priorityClassName\n"
            "spec.scheduling.topology\n"
            "spec.scheduling.autoscaler\n");
}

TEST(ValidateUpdate, ValidatesTheNewJob) {
  TrainingJob job = FromJson({{"apiVersion", "ringmaster.dev/v1alpha1"},
                              {"kind", "TrainingJob"},
                              {"metadata", {{"name", "job"}}},
                              {"spec",
                               {{"framework", "pytorch"},
                                {"launch", {{"kind", "none"}}},
                                {"workers", {{"replicas", 2}, {"template", Json::object()}}}}}})
                        .job;
  TrainingJob changed = job;
  EXPECT_EQ(Texts(ValidateUpdate(job, changed)), "");
  changed.spec.workers.replicas = 0;
  changed.spec.workers.slots = "2";
  EXPECT_EQ(Texts(ValidateUpdate(job, changed)),
            "spec.workers.replicas: must be at least 1 (got 0)\n"
            "spec.workers.slots: can be changed only while the job is stopped: set spec.suspend and wait for "
            "condition Suspended\n");
}

}  // namespace
}  // namespace ringmaster::api
