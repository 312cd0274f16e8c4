// SPDX-License-Identifier: Apache-2.0

// How the kube backend gives room to gangs: reservations, the queue, roles, the gang schedulers' objects.
#include <gtest/gtest.h>

#include <atomic>

#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "tests/conformance/kube_backend_fixture.h"

namespace ringmaster::conformance {
namespace {

TEST_F(KubeBackendTest, NativeGangScheduling) {
  const Key key = cluster_.Submit(Gang("job", 3, "auto"));
  EXPECT_EQ(Await(key).provider, core::GangProvider::kScheduler);
  ASSERT_TRUE(Write(key, core::PrepareGang{1, 3, 2}).ok());
  const kube::Resource groups = kube::ResourceOf(kube::GangApi::kNative, "v1beta1");
  const auto group = cluster_.Get(groups, wiring::GroupName("job", 1));
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ((*group)["spec"]["schedulingPolicy"]["gang"]["minCount"], 2);
  for (int32_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Write(key, core::CreatePod{core::PodName("job", 1, rank), 1, rank, 3}).ok());
  EXPECT_TRUE(Eventually([&] {
    const auto pods = backend_->Observe(key)->observed.pods;
    return pods.size() == 2 && pods[0].phase == core::PodPhase::kRunning &&
           pods[1].phase == core::PodPhase::kRunning;
  }));
  // The next attempt has a separate group, and the old one is deleted.
  EXPECT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.prepared.has_value(); }));
  ASSERT_TRUE(Write(key, core::PrepareGang{2, 3, 3}).ok());
  EXPECT_EQ(backend_->Observe(key)->observed.prepared, (core::PrepareGang{2, 3, 3}));
  EXPECT_TRUE(cluster_.Get(groups, wiring::GroupName("job", 2)).ok());
}

// The cluster gets or loses a gang scheduler, or the operator's flag changes, while a gang runs.
TEST_F(KubeBackendTest, AnAttemptKeepsItsGangProvider) {
  kube::KubeBackend::Options options = cluster_.BackendOptions();
  options.gang = core::GangMode::kGate;
  backend_ = Process(std::move(options));
  const Key key = cluster_.Submit(Gang("job", 2, "auto"));
  EXPECT_EQ(Await(key).provider, core::GangProvider::kGate);
  BeginAttempt(key, 1);
  ASSERT_TRUE(Write(key, core::PrepareGang{1, 2, 2}).ok());
  backend_->Stop();

  backend_ = Process(cluster_.BackendOptions());
  EXPECT_EQ(Await(key).provider, core::GangProvider::kGate);
  ASSERT_TRUE(Write(key, core::PrepareGang{1, 3, 2}).ok());
  EXPECT_EQ(Await(key).provider, core::GangProvider::kGate);
  BeginAttempt(key, 2);
  EXPECT_EQ(Await(key).provider, core::GangProvider::kScheduler) << "the next attempt chooses again";
}

// Two nodes with 8 GPUs each: three pods with 8 do not fit, two do.
TEST_F(KubeBackendTest, PlacesAreReservedBeforeThePodsExist) {
  const Key key = cluster_.Submit(Gang("job", 3, "gate", 8));
  const Key rival = cluster_.Submit(Gang("rival", 2, "gate", 8));
  EXPECT_EQ(Await(key).provider, core::GangProvider::kGate);
  BeginAttempt(key, 1);
  AwaitRoom(key);
  BeginAttempt(rival, 1);  // it would keep the room, which is enough for it, until its turn is over
  EXPECT_NE(FitOf(key).missing.find("nvidia.com/gpu"), std::string::npos) << FitOf(key).missing;
  EXPECT_EQ(FitOf(rival).room, 2);
  const auto all = Write(key, core::ReserveRoom{1, {0, 1, 2}});
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, Code::kConflict) << all.error().message;
  EXPECT_TRUE(FitOf(key).reserved.empty()) << "all or none";
  ASSERT_TRUE(Write(key, core::ReserveRoom{1, {0, 1}}).ok());
  EXPECT_EQ(FitOf(key).reserved, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(FitOf(key).room, 2) << "its own places are room for it";
  EXPECT_EQ(FitOf(rival).room, 0);
  // An attempt that is over keeps no places, and gets none.
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const Key& changed) { notified = notified || changed == rival; });
  BeginAttempt(key, 2);
  EXPECT_TRUE(Eventually([&] { return notified.load(); })) << "the rival finds room now";
  EXPECT_EQ(FitOf(rival).room, 2);
  EXPECT_EQ(Write(key, core::ReserveRoom{1, {0}}).error().code, Code::kConflict);
  ASSERT_TRUE(Write(rival, core::ReserveRoom{1, {0, 1}}).ok());
  EXPECT_EQ(FitOf(key).room, 0);
}

// Two nodes with 8 GPUs each, one of them taken: the gang that waits for both keeps others off the free one.
// Jobs of one second come in the order of their names.
TEST_F(KubeBackendTest, ASmallerGangDoesNotOvertakeTheHeadOfTheQueue) {
  const Key runs = cluster_.Submit(Gang("a-runs", 1, "gate", 8));
  const Key large = cluster_.Submit(Gang("b-large", 2, "gate", 8));
  const Key small = cluster_.Submit(Gang("c-small", 1, "gate", 8));
  for (const Key& key : {runs, large, small}) BeginAttempt(key, 1);
  ASSERT_TRUE(Eventually([&] { return FitOf(runs).room == 1; })) << FitOf(runs).missing;
  ASSERT_TRUE(Write(runs, core::ReserveRoom{1, {0}}).ok());
  EXPECT_EQ(FitOf(large).room, 1) << "now it waits";
  EXPECT_EQ(FitOf(small).room, 0);
  EXPECT_NE(FitOf(small).missing.find("kept for " + large.ToString()), std::string::npos)
      << FitOf(small).missing;
  EXPECT_EQ(Write(small, core::ReserveRoom{1, {0}}).error().code, Code::kConflict);
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const Key& changed) { notified = notified || changed == large; });
  End(runs);
  EXPECT_TRUE(Eventually([&] { return notified.load(); }));
  EXPECT_EQ(FitOf(small).room, 0);
  EXPECT_EQ(FitOf(large).room, 2);
  ASSERT_TRUE(Write(large, core::ReserveRoom{1, {0, 1}}).ok());
}

// Two nodes with 8 GPUs each, one of them taken: both gangs wait for two, and the younger one is more
// important.
TEST_F(KubeBackendTest, AYoungerGangOfHigherPriorityComesFirst) {
  const std::string name = cluster_.space() + "-urgent";  // classes have no namespace
  const Json urgent = {{"apiVersion", "scheduling.k8s.io/v1"},
                       {"kind", "PriorityClass"},
                       {"metadata", {{"name", name}}},
                       {"value", 1000}};
  const auto made =
      cluster_.Wait([&](auto done) { cluster_.client().Create(kube::kPriorityClasses, "", urgent, done); });
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Key runs = cluster_.Submit(Gang("a-runs", 1, "gate", 8));
  const Key older = cluster_.Submit(Gang("b-older", 2, "gate", 8));
  for (const Key& key : {runs, older}) BeginAttempt(key, 1);
  ASSERT_TRUE(Eventually([&] { return FitOf(runs).room == 1; })) << FitOf(runs).missing;
  ASSERT_TRUE(Write(runs, core::ReserveRoom{1, {0}}).ok());
  EXPECT_EQ(FitOf(older).room, 1) << "it is the head";
  api::TrainingJob important = Gang("younger", 2, "gate", 8);
  important.spec.scheduling.priorityClassName = name;
  const Key younger = cluster_.Submit(important);
  BeginAttempt(younger, 1);
  EXPECT_EQ(FitOf(younger).room, 1) << "it is the head now";
  EXPECT_EQ(FitOf(older).room, 0);
  End(runs);
  ASSERT_TRUE(Eventually([&] { return FitOf(younger).room == 2; }));
  ASSERT_TRUE(Write(younger, core::ReserveRoom{1, {0, 1}}).ok());
  EXPECT_EQ(FitOf(older).room, 0);
  const auto gone =
      cluster_.Wait([&](auto done) { cluster_.client().Delete(kube::kPriorityClasses, "", name, {}, done); });
  EXPECT_TRUE(gone.ok());
}

TEST_F(KubeBackendTest, PodsOfEveryRoleFindRoomTogether) {
  const auto submit = [&](const char* name, int gpus) {
    api::TrainingJob job = Gang(name, 2, "gate", 6);
    job.spec.framework = "tensorflow";
    job.spec.training.reset();
    Json own = Gang("server", 1, "gate", gpus).spec.workers.template_;
    for (Json* pod : {&job.spec.workers.template_, &own})
      (*pod)["spec"]["containers"][0]["command"] = Json::array({"python"});
    for (const char* role : {"chief", "ps"}) job.spec.roles.push_back({role, 1, own, {}, {}});
    const Key key = cluster_.Submit(job);
    BeginAttempt(key, 1);
    return key;
  };
  // The nodes never hold all its pods, so it keeps no room from the next one, though it comes first.
  const Key wide = submit("a-wide", 3);
  AwaitRoom(wide);
  EXPECT_NE(FitOf(wide).missing.find("3 x nvidia.com/gpu"), std::string::npos) << FitOf(wide).missing;
  const Key narrow = submit("narrow", 2);
  const std::vector<int32_t> all = {0, 1, core::RankInRole("chief", 0), core::RankInRole("ps", 0)};
  EXPECT_EQ(Write(wide, core::ReserveRoom{1, all}).error().code, Code::kConflict);
  ASSERT_TRUE(Write(narrow, core::ReserveRoom{1, all}).ok()) << FitOf(narrow).missing;
  EXPECT_EQ(FitOf(narrow).reserved, all);
}

// The label differs between the two nodes.
TEST_F(KubeBackendTest, PodsGetTheDomainOfTheirPlaces) {
  const std::string label = "kubernetes.io/hostname";
  api::TrainingJob required = Gang("near", 2, "gate", 4);
  required.spec.scheduling.topology.required = label;
  const Key near = cluster_.Submit(required);
  BeginAttempt(near, 1);
  ASSERT_TRUE(Eventually([&] { return FitOf(near).room == 2; })) << FitOf(near).missing;
  ASSERT_TRUE(Write(near, core::ReserveRoom{1, {0, 1}}).ok());
  api::TrainingJob preferred = Gang("wide", 2, "gate", 8);
  preferred.spec.scheduling.topology.preferred = label;
  const Key wide = cluster_.Submit(preferred);
  BeginAttempt(wide, 1);
  EXPECT_EQ(FitOf(wide).room, 1) << "a whole node is left";
  ASSERT_TRUE(Write(wide, core::ReserveRoom{1, {0}}).ok());
  const auto create = [&](const Key& key, int32_t rank) {
    EXPECT_TRUE(Write(key, core::CreatePod{core::PodName(key.name, 1, rank), 1, rank, 2, true}).ok());
    const auto pod = cluster_.Get(kube::kPods, core::PodName(key.name, 1, rank));
    return pod.ok() ? (*pod)["spec"]["nodeSelector"].value(label, "") : pod.error().message;
  };
  const std::string domain = create(near, 0);
  EXPECT_FALSE(domain.empty());
  EXPECT_EQ(create(near, 1), domain);
  const std::string other = create(wide, 0);
  EXPECT_FALSE(other.empty());
  EXPECT_NE(other, domain);
  // The pods that exist keep their domain, and others follow them.
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(near)->observed.pods.size() == 2; }));
  EXPECT_EQ(FitOf(near).reserved, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(FitOf(near).stranded.empty());
  std::vector<core::PodRef> refs;
  const auto seen = backend_->Observe(near);
  for (const core::Pod& pod : seen->observed.pods) refs.push_back({pod.name, pod.uid});
  ASSERT_TRUE(Write(near, core::ReleaseGang{1, refs}).ok());
  EXPECT_TRUE(Eventually([&] {
    const auto spread = backend_->Observe(near)->observed.spread;
    return spread == core::TopologySpread{label, 1, domain + ": 2"};
  }));
}

TEST_F(KubeBackendTest, AReleaseThatFailsKeepsItsPlaces) {
  std::atomic<int> writes{1000};
  kube::KubeBackend::Options options = cluster_.BackendOptions();
  options.may_write = [&] { return writes-- > 0; };
  backend_ = Process(std::move(options));
  const Key key = cluster_.Submit(Gang("job", 3, "gate", 8));
  Await(key);
  BeginAttempt(key, 1);
  AwaitRoom(key);
  ASSERT_TRUE(Write(key, core::ReserveRoom{1, {0, 1}}).ok());
  std::vector<core::PodRef> refs;
  for (int32_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Write(key, core::CreatePod{core::PodName("job", 1, rank), 1, rank, 3, true}).ok());
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.pods.size() == 2; }));
  const core::Observed seen = backend_->Observe(key)->observed;
  for (const core::Pod& pod : seen.pods) {
    EXPECT_TRUE(pod.gated);
    refs.push_back({pod.name, pod.uid});
  }
  writes = 1;  // the release is accepted, and no patch is sent
  EXPECT_FALSE(Write(key, core::ReleaseGang{1, refs}).ok());
  EXPECT_EQ(FitOf(key).reserved, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(FitOf(key).room, 2);
  writes = 1000;
  ASSERT_TRUE(Write(key, core::ReleaseGang{1, refs}).ok());
  EXPECT_TRUE(Eventually([&] {
    const auto pods = backend_->Observe(key)->observed.pods;
    return pods.size() == 2 && pods[0].phase == core::PodPhase::kRunning &&
           pods[1].phase == core::PodPhase::kRunning;
  }));
  EXPECT_EQ(FitOf(key).room, 0);
  EXPECT_TRUE(FitOf(key).reserved.empty());
}

TEST_F(KubeBackendTest, AGatedPodOfAnotherProcessNeedsANewReservation) {
  const Key key = cluster_.Submit(Gang("job", 2, "gate", 8));
  Await(key);
  BeginAttempt(key, 1);
  ASSERT_TRUE(Write(key, core::CreatePod{"job-1-0", 1, 0, 2, true}).ok());
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.pods.size() == 1; }));
  const core::Pod pod = backend_->Observe(key)->observed.pods[0];
  const core::ReleaseGang release{1, {{pod.name, pod.uid}}};
  EXPECT_EQ(Write(key, release).error().code, Code::kConflict);
  AwaitRoom(key);
  ASSERT_TRUE(Write(key, core::ReserveRoom{1, {0, 1}}).ok());
  EXPECT_TRUE(Write(key, release).ok());
}

}  // namespace
}  // namespace ringmaster::conformance
