// SPDX-License-Identifier: Apache-2.0

#include "api/slots.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ringmaster::api
