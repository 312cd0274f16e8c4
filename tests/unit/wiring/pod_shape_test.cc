// SPDX-License-Identifier: Apache-2.0

// Reads quantities, requests and scheduling constraints of pods.
#include "operator/wiring/pod_shape.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "operator/wiring/names.h"
#include "operator/wiring/quantity.h"
#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

TEST(QuantityTest, MilliRoundedUp) {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"1", 1000},
                                                   {"500m", 500},
                                                   {"0.5", 500},
                                                   {"1.5Gi", 1610612736000},
                                                   {"100k", 100000000},
                                                   {"1Ki", 1024000},
                                                   {"1e3", 1000000},
                                                   {"1E3", 1000000},
                                                   {"12E-1", 1200},
                                                   {"1n", 1},
                                                   {"1u", 1},
                                                   {"1500u", 2},
                                                   {"0.0001", 1},
                                                   {"2M", 2000000000},
                                                   {"+3", 3000},
                                                   {"-1", -1000},
                                                   {".5", 500},
                                                   {"5.", 5000},
                                                   {"8Ei", INT64_MAX},
                                                   {"1e30", INT64_MAX},
                                                   {"123456789012345678901234567890", INT64_MAX}};
  for (const auto& [text, milli] : cases) EXPECT_EQ(ParseMilli(text), milli) << text;
  for (const char* text : {"", "m", "1x", "1 Gi", "1Gi ", "--1", "1.2.3", "e3", "1ee", "1Kib", "abc"})
    EXPECT_EQ(ParseMilli(text), std::nullopt) << text;
}

TEST(QuantityTest, ResourcesInTheirUnits) {
  EXPECT_EQ(
      ParseResources(Json::parse(
          R"({"cpu":"1500m","memory":"1Mi","nvidia.com/gpu":"8","pods":110,"bad":"x","neg":"-1","odd":[]})")),
      (core::Resources{{"cpu", 1500}, {"memory", 1 << 20}, {"nvidia.com/gpu", 8}, {"pods", 110}}));
}

// YAML without quotes; the API server accepts it.
TEST(QuantityTest, NumbersAreQuantities) {
  EXPECT_EQ(
      ParseResources(Json::parse(R"({"cpu":7.5,"memory":1e9,"nvidia.com/gpu":8,"example.com/x":0.25})")),
      (core::Resources{
          {"cpu", 7500}, {"memory", 1'000'000'000}, {"nvidia.com/gpu", 8}, {"example.com/x", 1}}));
}

TEST(PodShapeTest, SumsRequests) {
  const auto of = [](const char* spec) { return RequestsOf(Json::parse(spec)); };
  EXPECT_EQ(
      of(R"({"containers":[{"resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"2"}}}]})"),
      (core::Resources{{"cpu", 3000}}));
  EXPECT_EQ(of(R"({"initContainers":[{"resources":{"requests":{"cpu":"9"}}}],
                   "containers":[{"resources":{"requests":{"cpu":"1"}}}]})"),
            (core::Resources{{"cpu", 9000}}));
  EXPECT_EQ(of(R"({"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"2"}}},
                                     {"resources":{"requests":{"cpu":"3"}}}],
                   "containers":[{"resources":{"requests":{"cpu":"4"}}}],"overhead":{"cpu":"100m"}})"),
            (core::Resources{{"cpu", 6100}}));
  EXPECT_EQ(of(R"({"containers":[{"resources":{"limits":{"nvidia.com/gpu":"8"}}}]})"),
            (core::Resources{{"nvidia.com/gpu", 8}}));
}

TEST(QuantityTest, AmountsBecomeQuantities) {
  EXPECT_EQ(QuantityText("cpu", 2000), "2");
  EXPECT_EQ(QuantityText("cpu", 1500), "1500m");
  EXPECT_EQ(QuantityText("memory", int64_t{1} << 36), "68719476736");
  EXPECT_EQ(QuantityText("nvidia.com/gpu", 8), "8");
}

TEST(PodShapeTest, ReadsSchedulingConstraints) {
  const core::PodShape shape =
      ShapeOf(Json::parse(R"({"metadata":{"labels":{"app":"x"}},"spec":{"nodeSelector":{"zone":"a"},
      "tolerations":[{"key":"gpu","operator":"Exists","effect":"NoSchedule"},{"operator":"Equal","key":"k","value":"v"}],
      "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
        {"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":["n1"]}],
         "matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]}]}},
        "podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
          {"topologyKey":"rack","labelSelector":{"matchLabels":{"app":"x"}}}]}}}})"));
  EXPECT_EQ(shape.node_selector, (std::map<std::string, std::string>{{"zone", "a"}}));
  ASSERT_EQ(shape.tolerations.size(), 2U);
  EXPECT_TRUE(shape.tolerations[0].exists);
  EXPECT_EQ(shape.tolerations[1].value, "v");
  ASSERT_EQ(shape.affinity.size(), 1U);
  ASSERT_EQ(shape.affinity[0].size(), 2U);
  EXPECT_EQ(shape.affinity[0][0].op, core::Requirement::Op::kNotIn);
  EXPECT_EQ(shape.affinity[0][1].key, "metadata.name");
  EXPECT_EQ(shape.topology_key, "rack");
}

// Only an affinity to the gang's own pods keeps the gang within one domain. "near a cache" does not.
TEST(PodShapeTest, OnlyAnAffinityToItselfIsATopologyKey) {
  const auto key = [](const std::string& term) {
    return ShapeOf(Json::parse(fmt::format(
                       R"({{"metadata":{{"namespace":"ml","labels":{{"app":"x","tier":"gpu"}}}},
            "spec":{{"affinity":{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[
              {{"topologyKey":"rack",{}}}]}}}}}}}})",
                       term)))
        .topology_key;
  };
  for (const char* own : {
           R"("labelSelector":{"matchLabels":{"app":"x"}})",
           R"("labelSelector":{})",
           R"("labelSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["y","x"]},
              {"key":"tier","operator":"Exists"},{"key":"other","operator":"DoesNotExist"}]})",
           R"("labelSelector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["y"]}]})",
           R"("labelSelector":{"matchLabels":{"app":"x"}},"namespaces":["ml"])",
           R"("labelSelector":{"matchLabels":{"app":"x"}},"namespaces":["other"],"namespaceSelector":{})",
       })
    EXPECT_EQ(key(own), "rack") << own;
  for (const char* foreign : {
           R"("labelSelector":{"matchLabels":{"app":"cache"}})",
           R"("labelSelector":null)",
           R"("labelSelector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["x"]}]})",
           R"("labelSelector":{"matchExpressions":[{"key":"other","operator":"Exists"}]})",
           R"("labelSelector":{"matchLabels":{"app":"x"}},"namespaces":["other"])",
           R"("labelSelector":{"matchLabels":{"app":"x"}},"mismatchLabelKeys":["tier"])",
       })
    EXPECT_EQ(key(foreign), "") << foreign;
}

TEST(PodShapeTest, ClaimsByTemplate) {
  const Json pod = Json::parse(R"({"spec": {"containers": [{"name": "worker"}], "resourceClaims": [
    {"name": "nic", "resourceClaimTemplateName": "nic"}, {"name": "a", "resourceClaimTemplateName": "gpu"},
    {"name": "ready", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "gpu"}]}})");
  EXPECT_EQ(ShapeOf(pod).claims, (std::vector<std::string>{"gpu", "gpu", "nic"}));
  EXPECT_TRUE(ShapeOf(Json::object()).claims.empty());
}

TEST(PodShapeTest, ARenderedGangWithARequiredTopologyHasItsKey) {
  const api::TrainingJob job = JobWith("  scheduling: {topology: {required: rack}}\n");
  EXPECT_EQ(ShapeOf(PodOf(job, "uid-1", 0, PlainContext())).topology_key, "rack");
}

// A preference of the template is not what the job asks for.
TEST(PodShapeTest, ARenderedGangWithAPreferredTopologyHasItsKey) {
  api::TrainingJob job = JobWith("  scheduling: {topology: {preferred: rack}}\n");
  EXPECT_EQ(ShapeOf(PodOf(job, "uid-1", 0, PlainContext())).preferred_key, "rack");
  EXPECT_EQ(ShapeOf(PodOf(job, "uid-1", 0, PlainContext())).topology_key, "");
  const Json zone = {{"topologyKey", "zone"}, {"labelSelector", Json::object()}};
  Json& spec = job.spec.workers.template_["spec"];
  spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
      Json::array({{{"weight", 100}, {"podAffinityTerm", zone}}});
  EXPECT_EQ(ShapeOf(PodOf(job, "uid-1", 0, PlainContext())).preferred_key, "rack");
  Context context = PlainContext();
  context.domain = {{"rack", "r7"}};
  EXPECT_EQ(ShapeOf(PodOf(job, "uid-1", 0, context)).node_selector.at("rack"), "r7");
}

}  // namespace
}  // namespace ringmaster::wiring
