// SPDX-License-Identifier: Apache-2.0

// How the kube backend counts devices of claims, on a real API server: the objects are those that drivers and
// users write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "operator/kube/backend/resources.h"
#include "tests/conformance/kube_backend_fixture.h"

namespace ringmaster::conformance {
namespace {

class KubeBackendDevicesTest : public KubeBackendTest {
 protected:
  void SetUp() override {
    KubeBackendTest::SetUp();
    class_ = cluster_.space() + ".example.com";  // classes have no namespace
    ASSERT_NO_FATAL_FAILURE(
        Make(kube::kDeviceClasses, "", Class(fmt::format("device.driver == '{}'", class_))));
    for (const char* node : {"node-0", "node-1"})
      ASSERT_NO_FATAL_FAILURE(Make(kube::kResourceSlices, "", Slice(node, 8)));
  }
  void TearDown() override {
    for (const char* node : {"node-0", "node-1"}) Delete(kube::kResourceSlices, SliceName(node));
    Delete(kube::kDeviceClasses, class_);
  }

  void Make(const kube::Resource& resource, const std::string& space, const Json& object) {
    const auto made =
        cluster_.Wait([&](auto done) { cluster_.client().Create(resource, space, object, done); });
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  void Delete(const kube::Resource& resource, const std::string& name) {
    EXPECT_TRUE(
        cluster_.Wait([&](auto done) { cluster_.client().Delete(resource, "", name, {}, done); }).ok());
  }
  Json Class(const std::string& selector) const {
    return {{"apiVersion", "resource.k8s.io/v1"},
            {"kind", "DeviceClass"},
            {"metadata", {{"name", class_}}},
            {"spec", {{"selectors", Json::array({{{"cel", {{"expression", selector}}}}})}}}};
  }
  std::string SliceName(const std::string& node) const { return cluster_.space() + "-" + node; }
  Json Slice(const std::string& node, int devices) const {
    Json list = Json::array();
    for (int i = 0; i < devices; ++i)
      list.push_back(
          {{"name", fmt::format("gpu-{}", i)},
           {"attributes", {{"model", {{"string", i == 0 ? "LARGE" : "SMALL"}}}, {"index", {{"int", i}}}}}});
    return {{"apiVersion", "resource.k8s.io/v1"},
            {"kind", "ResourceSlice"},
            {"metadata", {{"name", SliceName(node)}}},
            {"spec",
             {{"driver", class_},
              {"nodeName", node},
              {"pool", {{"name", node}, {"generation", 1}, {"resourceSliceCount", 1}}},
              {"devices", list}}}};
  }
  void MakeTemplate(const std::string& name, int64_t count, const std::string& selector = {}) {
    Json exactly = {{"deviceClassName", class_}, {"count", count}};
    if (!selector.empty()) exactly["selectors"] = Json::array({{{"cel", {{"expression", selector}}}}});
    const Json requests = Json::array({{{"name", "gpus"}, {"exactly", exactly}}});
    Make(kube::kClaimTemplates, cluster_.space(),
         {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceClaimTemplate"},
          {"metadata", {{"name", name}}},
          {"spec", {{"spec", {{"devices", {{"requests", requests}}}}}}}});
  }
  Key Submit(const std::string& name, int32_t replicas, const std::string& claim) {
    api::TrainingJob job = Gang(name, replicas, "gate");
    job.spec.workers.template_ = {
        {"spec",
         {{"resourceClaims", Json::array({{{"name", "gpus"}, {"resourceClaimTemplateName", claim}}})},
          {"containers", Json::array({{{"name", "worker"},
                                       {"resources", {{"claims", Json::array({{{"name", "gpus"}}})}}}}})}}}};
    const Key key = cluster_.Submit(job);
    BeginAttempt(key, 1);
    return key;
  }
  // Returns whether the gang finds room for so many pods within a time limit.
  bool AwaitRoomFor(const Key& key, int32_t pods) {
    return Eventually([&] { return FitOf(key).room == pods; });
  }

  std::string class_;
};

TEST_F(KubeBackendDevicesTest, TwoGangsThatEachFitAloneDoNotBothGetPlaces) {
  MakeTemplate("eight", 8);
  MakeTemplate("five", 5);
  const Key one = Submit("one", 2, "eight");
  const Key other = Submit("other", 2, "five");
  ASSERT_TRUE(AwaitRoomFor(one, 2)) << FitOf(one).missing;
  EXPECT_EQ(FitOf(other).room, 0) << "it is the turn of the first one";
  EXPECT_EQ(FitOf(other).missing, "the room is kept for " + one.ToString() + ", which comes first");
  ASSERT_TRUE(Write(one, core::ReserveRoom{1, {0, 1}}).ok());
  EXPECT_EQ(FitOf(other).room, 0);
  EXPECT_EQ(FitOf(other).missing,
            fmt::format("needs 5 devices of {} on 2 nodes; 0 nodes have room (other nodes: 2 full)", class_));
  EXPECT_EQ(Write(other, core::ReserveRoom{1, {0, 1}}).error().code, Code::kConflict);
  End(one);
  EXPECT_TRUE(AwaitRoomFor(other, 2)) << FitOf(other).missing;
  EXPECT_TRUE(Write(other, core::ReserveRoom{1, {0, 1}}).ok());
}

TEST_F(KubeBackendDevicesTest, ATemplateThatComesLater) {
  const Key key = Submit("job", 3, "later");
  ASSERT_TRUE(Eventually([&] {
    return FitOf(key).missing.find("the namespace has no ResourceClaimTemplate later") != std::string::npos;
  })) << FitOf(key).missing;
  EXPECT_EQ(FitOf(key).room, 0);
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const Key& changed) { notified = notified || changed == key; });
  MakeTemplate("later", 1, fmt::format(R"(device.attributes["{}"].model == "LARGE")", class_));
  EXPECT_TRUE(Eventually([&] { return notified.load(); }));
  EXPECT_TRUE(AwaitRoomFor(key, 2)) << "one large device on each of two nodes: " << FitOf(key).missing;
}

TEST_F(KubeBackendDevicesTest, DevicesOfSharedClaimsAreTaken) {
  MakeTemplate("eight", 8);
  const Key key = Submit("job", 2, "eight");
  ASSERT_TRUE(AwaitRoomFor(key, 2)) << FitOf(key).missing;
  const Json requests = Json::array({{{"name", "gpus"}, {"exactly", {{"deviceClassName", class_}}}}});
  const Json claim = {{"apiVersion", "resource.k8s.io/v1"},
                      {"kind", "ResourceClaim"},
                      {"metadata", {{"name", "shared"}}},
                      {"spec", {{"devices", {{"requests", requests}}}}}};
  Make(kube::kResourceClaims, cluster_.space(), claim);
  // A pod that uses it has the scheduler allocate it.
  Json pod = PlainPod("user");
  pod["spec"]["resourceClaims"] = Json::array({{{"name", "gpus"}, {"resourceClaimName", "shared"}}});
  ASSERT_TRUE(cluster_.Create(kube::kPods, pod).ok());
  EXPECT_TRUE(AwaitRoomFor(key, 1)) << FitOf(key).missing;
}

TEST_F(KubeBackendDevicesTest, APoolInTransition) {
  MakeTemplate("two", 2);
  const Key key = Submit("job", 8, "two");
  ASSERT_TRUE(AwaitRoomFor(key, 8)) << FitOf(key).missing;
  Json newer = Slice("node-1", 3);
  newer["metadata"]["name"] = SliceName("newer");
  newer["spec"]["pool"] = {{"name", "node-1"}, {"generation", 2}, {"resourceSliceCount", 2}};
  Make(kube::kResourceSlices, "", newer);
  EXPECT_TRUE(AwaitRoomFor(key, 4)) << "the new generation is not complete";
  Delete(kube::kResourceSlices, SliceName("newer"));
  EXPECT_TRUE(AwaitRoomFor(key, 8));
}

}  // namespace
}  // namespace ringmaster::conformance
