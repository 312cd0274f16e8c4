// SPDX-License-Identifier: Apache-2.0

#include "api/slots.h"

#include <gtest/gtest.h>

#include "api/load.h"

namespace ringmaster::api {
namespace {

Workers Gpus(const char* resources) {
  Workers workers;
  workers.slots = "gpu";
  workers.template_ = {{"spec",
                        {{"containers",
                          {{{"name", "sidecar"}, {"resources", {{"limits", {{"nvidia.com/gpu", 7}}}}}},
                           {{"name", "worker"}, {"resources", Json::parse(resources)}}}}}}};
  return workers;
}

TEST(SlotsOf, ANumberIsReturned) {
  Workers workers;
  EXPECT_EQ(SlotsOf(workers), 1);
  workers.slots = "4";
  EXPECT_EQ(SlotsOf(workers), 4);
}

TEST(SlotsOf, GpuCountsTheGpusOfTheTrainingContainer) {
  EXPECT_EQ(SlotsOf(Gpus(R"({"limits": {"nvidia.com/gpu": "8", "memory": "64Gi"}})")), 8);
  EXPECT_EQ(SlotsOf(Gpus(R"({"limits": {"amd.com/gpu": 4}})")), 4);
  EXPECT_EQ(SlotsOf(Gpus(R"({"requests": {"nvidia.com/mig-1g.10gb": 2}})")), 2);
  EXPECT_EQ(SlotsOf(Gpus(R"({"limits": {"cpu": "8"}})")), 1) << "one is asked for then";
  EXPECT_EQ(SlotsOf(Gpus("[]")), 1) << "any shape";
  Workers only = Gpus("{}");
  only.template_["spec"]["containers"] =
      Json::parse(R"([{"name": "train", "resources": {"limits": {"nvidia.com/gpu": 2}}}])");
  EXPECT_EQ(SlotsOf(only), 2);
}

TEST(SlotsUnknown, IsTrueOnlyWithAClaimAndWithoutAResource) {
  EXPECT_TRUE(SlotsUnknown(Gpus(R"({"claims": [{"name": "gpus"}]})")));
  EXPECT_FALSE(SlotsUnknown(Gpus(R"({"claims": [{"name": "nic"}], "limits": {"nvidia.com/gpu": 1}})")));
  Workers number = Gpus(R"({"claims": [{"name": "gpus"}]})");
  number.slots = "2";
  EXPECT_FALSE(SlotsUnknown(number));
}

std::vector<Problem> ProblemsOf(const std::string& limits, const std::string& roles) {
  return LoadYaml(
             "apiVersion: ringmaster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\nspec:\n  "
             "framework: pytorch\n"
             "  workers:\n    replicas: 2\n    slots: gpu\n    template: {spec: {containers: [{name: worker, "
             "command: "
             "[python, a.py], resources: {limits: {" +
             limits + "}}}]}}\n" + roles)
      .problems;
}

TEST(SlotsOf, AMasterHasAsManyAsTheOtherWorkers) {
  const auto master = [](const std::string& gpus) {
    return "  roles: [{name: master, template: {spec: {containers: [{name: worker, command: [python, a.py], "
           "resources: "
           "{limits: {nvidia.com/gpu: " +
           gpus + "}}}]}}}]\n";
  };
  EXPECT_TRUE(ProblemsOf("nvidia.com/gpu: 8", master("8")).empty());
  const auto problems = ProblemsOf("nvidia.com/gpu: 8", master("4"));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.roles[0].template");
  EXPECT_NE(problems[0].message.find("(got 4 and 8)"), std::string::npos) << problems[0].message;
}

TEST(SlotsOf, PartsOfGpusAreNoSlots) {
  EXPECT_TRUE(ProblemsOf("nvidia.com/mig-1g.10gb: 1", "").empty());
  for (const char* resource : {"nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"}) {
    const auto problems = ProblemsOf(std::string(resource) + ": 2", "");
    ASSERT_EQ(problems.size(), 1U) << resource;
    EXPECT_EQ(problems[0].path, "spec.workers.slots");
  }
}

}  // namespace
}  // namespace ringmaster::api
