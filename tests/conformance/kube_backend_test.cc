// SPDX-License-Identifier: Apache-2.0

// Features of the kube backend alone: owners, gangs, capacity, Pod Security, a second process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "operator/core/decide.h"
#include "operator/core/rules.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "tests/conformance/test_cluster.h"

namespace ringmaster::conformance {
namespace {

using control::Key;
using control::Revision;

class KubeBackendTest : public testing::Test {
 protected:
  void SetUp() override { backend_ = Process(cluster_.BackendOptions()); }

  std::unique_ptr<kube::KubeBackend> Process(kube::KubeBackend::Options options) {
    auto backend = std::make_unique<kube::KubeBackend>(cluster_.client(), std::move(options));
    backend->Start();
    EXPECT_TRUE(Eventually([&] { return backend->Synced(); }));
    return backend;
  }
  core::Observed Await(const Key& key) {
    EXPECT_TRUE(Eventually([&] { return backend_->Observe(key).has_value(); }));
    return backend_->Observe(key)->observed;
  }
  Result<Revision> Write(const Key& key, core::Action action) {
    const auto snapshot = backend_->Observe(key);
    auto answer = std::make_shared<std::promise<Result<Revision>>>();
    auto future = answer->get_future();
    backend_->Execute({key, snapshot->observed.job.uid, std::move(action), snapshot->job_revision},
                      [answer](Result<Revision> result) { answer->set_value(std::move(result)); });
    return future.get();
  }
  api::TrainingJob Gang(const std::string& name, int32_t replicas, const char* gang, int gpus = 0) {
    api::TrainingJob job = cluster_.Job(name);
    job.spec.workers.replicas = replicas;
    job.spec.scheduling.gang = gang;
    if (gpus > 0) {
      const Json limits = {{"nvidia.com/gpu", std::to_string(gpus)}};
      job.spec.workers.template_ = {
          {"spec",
           {{"containers", Json::array({{{"name", "worker"}, {"resources", {{"limits", limits}}}}})}}}};
    }
    return job;
  }
  void BeginAttempt(const Key& key, int64_t attempt) {
    Await(key);
    core::SetStatus set;
    set.status.ledger.attempt = attempt;
    ASSERT_TRUE(Write(key, set).ok());
    ASSERT_TRUE(
        Eventually([&] { return backend_->Observe(key)->observed.status.ledger.attempt == attempt; }));
  }
  // Waits until the pods of earlier tests have left the two nodes.
  void AwaitRoom(const Key& key) {
    ASSERT_TRUE(Eventually([&] { return FitOf(key).room == 2; })) << FitOf(key).missing;
  }
  core::Fit FitOf(const Key& key) { return backend_->Observe(key)->observed.fit; }
  Json PlainPod(const std::string& name) {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name}}},
            {"spec", {{"containers", Json::array({{{"name", "x"}, {"image", "x"}}})}}}};
  }

  TestCluster cluster_;
  std::unique_ptr<kube::KubeBackend> backend_;
};

TEST_F(KubeBackendTest, AForeignPodWithTheNameIsReported) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  ASSERT_TRUE(cluster_.Create(kube::kPods, PlainPod("job-1-0")).ok());
  const auto result = Write(key, core::CreatePod{"job-1-0", 1, 0});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kAlreadyExists);
  EXPECT_NE(result.error().message.find("has no owner"), std::string::npos) << result.error().message;
}

TEST_F(KubeBackendTest, AForeignConfigMapWithTheNameIsNotChanged) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  const std::string name = wiring::ConfigName("job");
  ASSERT_TRUE(cluster_
                  .Create(kube::kConfigMaps, {{"apiVersion", "v1"},
                                              {"kind", "ConfigMap"},
                                              {"metadata", {{"name", name}}},
                                              {"data", {{"app", "theirs"}}}})
                  .ok());
  const auto result = Write(key, core::PrepareGang{1, 1, 1});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kForbidden);
  EXPECT_NE(result.error().message.find(name), std::string::npos) << result.error().message;
  EXPECT_EQ((*cluster_.Get(kube::kConfigMaps, name))["data"]["app"], "theirs");
}

TEST_F(KubeBackendTest, NothingIsWrittenWithoutLeadership) {
  kube::KubeBackend::Options options = cluster_.BackendOptions();
  options.may_write = [] { return false; };
  backend_ = Process(std::move(options));
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  for (const core::Action& action :
       std::vector<core::Action>{core::CreatePod{"job-1-0", 1, 0}, core::SetStatus{}, core::DeleteJob{},
                                 core::PrepareGang{1, 1, 1}, core::DeletePod{"x", "y", seconds(1)}}) {
    const auto result = Write(key, action);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable) << result.error().message;
  }
  EXPECT_EQ(cluster_.Get(kube::kPods, "job-1-0").error().code, Code::kNotFound);
  EXPECT_TRUE(cluster_.Get(kube::kJobs, "job").ok());
}

TEST_F(KubeBackendTest, TheNextProcessReadsTheLedger) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  core::SetStatus set;
  core::Ledger& ledger = set.status.ledger;
  ledger.attempt = 4;
  ledger.gang_size = 1;
  ledger.restarts = {3, 2, 1};
  ledger.counted = {"uid-1", "uid-2"};
  ledger.not_before = Now() + seconds(20);
  ledger.active_since = Now() - seconds(100);
  ledger.last_failure.emplace();
  ledger.last_failure->pod = "job-3-0";
  ledger.last_failure->message = "lost \"it\"";
  ASSERT_TRUE(Write(key, set).ok());
  const core::PrepareGang prepare{4, 1, 1};
  ASSERT_TRUE(Write(key, prepare).ok());
  backend_->Stop();

  // Both processes share a steady clock here, but the times that are read were converted to wall-clock times
  // and back.
  backend_ = Process(cluster_.BackendOptions());
  const core::Observed seen = Await(key);
  EXPECT_EQ(seen.prepared, prepare);
  EXPECT_EQ(seen.status.ledger.attempt, 4);
  EXPECT_EQ(seen.status.ledger.restarts, ledger.restarts);
  EXPECT_EQ(seen.status.ledger.counted, ledger.counted);
  EXPECT_EQ(seen.status.ledger.last_failure->message, "lost \"it\"");
  ASSERT_TRUE(seen.status.ledger.not_before && seen.status.ledger.active_since);
  const Duration off = *seen.status.ledger.not_before - *ledger.not_before;
  EXPECT_LT(off < Duration{0} ? -off : off, seconds(5));
  EXPECT_FALSE(seen.order.has_value()) << "the new process has a new coordinator";
}

TEST_F(KubeBackendTest, ANewCertificateAuthorityReachesRunningGangs) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  backend_->SetAuthority("the first\n");
  const core::PrepareGang prepare{1, 1, 1};
  ASSERT_TRUE(Write(key, prepare).ok());
  EXPECT_EQ(backend_->Observe(key)->observed.prepared, prepare);
  const auto published = [&] {
    return (*cluster_.Get(kube::kConfigMaps, wiring::ConfigName("job")))["data"]["ca.crt"].get<std::string>();
  };
  EXPECT_EQ(published(), "the first\n");
  std::atomic<int> notified{0};
  backend_->Subscribe([&](const Key& changed) { notified += changed == key ? 1 : 0; });
  backend_->SetAuthority("the first\nthe second\n");
  EXPECT_GT(notified, 0);
  EXPECT_NE(backend_->Observe(key)->observed.prepared, prepare);
  ASSERT_TRUE(Write(key, prepare).ok());
  EXPECT_EQ(backend_->Observe(key)->observed.prepared, prepare);
  EXPECT_EQ(published(), "the first\nthe second\n");
}

// The answer about an object that was deleted since does not restore it in the view.
TEST_F(KubeBackendTest, AWatchEventOverridesAnOlderAnswer) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  const core::PrepareGang prepare{1, 1, 1};
  ASSERT_TRUE(Write(key, prepare).ok());
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    cluster_.client().Delete(kube::kConfigMaps, cluster_.space(), wiring::ConfigName("job"),
                                             {}, done);
                  })
                  .ok());
  EXPECT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.prepared != prepare; }));
}

// The owner decides which pods are a job's. A label can be removed.
TEST_F(KubeBackendTest, ALiveReadFindsAPodWithoutItsLabel) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  for (int32_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Write(key, core::CreatePod{core::PodName("job", 1, rank), 1, rank, 2}).ok());
  const auto pods = [&] { return backend_->Observe(key)->observed.pods.size(); };
  ASSERT_TRUE(Eventually([&] { return pods() == 2; }));
  const Json unlabelled = {{"metadata", {{"labels", {{wiring::kJobLabel, nullptr}}}}}};
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    cluster_.client().Patch(kube::kPods, cluster_.space(), "job-1-1", "",
                                            kube::ApiClient::PatchType::kMerge, unlabelled, done);
                  })
                  .ok());
  const auto read = [&] {
    auto answer = std::make_shared<std::promise<Status>>();
    auto future = answer->get_future();
    backend_->ReadThrough(key, [answer](Status status) { answer->set_value(std::move(status)); });
    return future.get();
  };
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(pods(), 2U);
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    kube::DeleteOptions now;
                    now.grace_seconds = 0;
                    cluster_.client().Delete(kube::kPods, cluster_.space(), "job-1-1", now, done);
                  })
                  .ok());
  const std::string uid = backend_->Observe(key)->observed.pods.at(1).uid;
  ASSERT_TRUE(Write(key, core::UntrackPod{"job-1-1", uid}).ok());
  ASSERT_TRUE(read().ok());
  EXPECT_EQ(pods(), 1U);
}

TEST_F(KubeBackendTest, ADeletedPodIsHeldUntilItIsUntracked) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  ASSERT_TRUE(Write(key, core::CreatePod{"job-1-0", 1, 0, 1}).ok());
  const auto pods = [&] { return backend_->Observe(key)->observed.pods; };
  ASSERT_TRUE(Eventually([&] { return pods().size() == 1 && pods()[0].phase == core::PodPhase::kRunning; }));
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    kube::DeleteOptions now;
                    now.grace_seconds = 0;
                    cluster_.client().Delete(kube::kPods, cluster_.space(), "job-1-0", now, done);
                  })
                  .ok());
  ASSERT_TRUE(Eventually([&] { return pods().at(0).deleting(); }));
  EXPECT_TRUE(pods()[0].tracked);
  const std::string uid = pods()[0].uid;
  const auto untracked = Write(key, core::UntrackPod{"job-1-0", uid});
  ASSERT_TRUE(untracked.ok()) << untracked.error().message;
  EXPECT_TRUE(Eventually([&] { return pods().empty(); }));
  EXPECT_TRUE(Write(key, core::UntrackPod{"job-1-0", uid}).ok()) << "again, from an old view";
}

TEST_F(KubeBackendTest, PodsOfADeletedJobAreStrays) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  ASSERT_TRUE(Write(key, core::CreatePod{"job-1-0", 1, 0, 1}).ok());
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.pods.size() == 1; }));
  const auto remove = [&](const char* propagation) {
    return cluster_
        .Wait([&](auto done) {
          kube::DeleteOptions options;
          options.propagation = propagation;
          cluster_.client().Delete(kube::kJobs, cluster_.space(), "job", options, done);
        })
        .ok();
  };
  ASSERT_TRUE(remove("Background"));
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.job.uid.empty(); }));
  const core::Observed left = backend_->Observe(key)->observed;
  EXPECT_TRUE(left.job.deleted);
  EXPECT_TRUE(left.pods.empty());
  ASSERT_EQ(left.strays.size(), 1U);
  const std::vector<Key> keys = backend_->Keys();
  EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end());
  ASSERT_TRUE(Write(key, core::UntrackPod{"job-1-0", left.strays[0].uid}).ok());
  EXPECT_TRUE(Eventually([&] { return !backend_->Observe(key); })) << "the garbage collector deletes it";
}

TEST_F(KubeBackendTest, OrphanedPodsRunOn) {
  const Key key = cluster_.Submit(cluster_.Job("job"));
  Await(key);
  ASSERT_TRUE(Write(key, core::CreatePod{"job-1-0", 1, 0, 1}).ok());
  ASSERT_TRUE(Eventually([&] {
    const auto pods = backend_->Observe(key)->observed.pods;
    return pods.size() == 1 && pods[0].phase == core::PodPhase::kRunning;
  }));
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    kube::DeleteOptions options;
                    options.propagation = "Orphan";
                    cluster_.client().Delete(kube::kJobs, cluster_.space(), "job", options, done);
                  })
                  .ok());
  // As the controller would, while the garbage collector removes the owner reference.
  EXPECT_TRUE(Eventually([&] {
    const auto left = backend_->Observe(key);
    if (!left) return true;
    const core::Decision decision = core::Decide(left->observed, Now());
    for (const core::Action& action : decision.actions) {
      EXPECT_TRUE(std::holds_alternative<core::UntrackPod>(action) || !left->observed.job.deleted);
      if (std::holds_alternative<core::UntrackPod>(action))
        backend_->Execute({key, left->observed.job.uid, action, {}}, [](const Result<Revision>&) {});
    }
    return false;
  }));
  const auto pod = cluster_.Get(kube::kPods, "job-1-0");
  ASSERT_TRUE(pod.ok()) << pod.error().message;
  EXPECT_EQ((*pod)["status"]["phase"], "Running");
  EXPECT_FALSE((*pod)["metadata"].contains("deletionTimestamp"));
  EXPECT_FALSE((*pod)["metadata"].contains("finalizers"));
  EXPECT_FALSE((*pod)["metadata"].contains("ownerReferences"));
}

TEST_F(KubeBackendTest, AnEndedJobGivesItsHostPortsBack) {
  kube::KubeBackend::Options options = cluster_.BackendOptions();
  options.host_ports = {20000, wiring::kHostPortsPerRank};
  backend_ = Process(std::move(options));
  const auto submit = [&](const std::string& name) {
    api::TrainingJob job = cluster_.Job(name);
    job.spec.network.hostNetwork = true;
    const Key key = cluster_.Submit(job);
    Await(key);
    return key;
  };
  const Key one = submit("one");
  const Key two = submit("two");
  ASSERT_TRUE(Write(one, core::PrepareGang{1, 1, 1}).ok());
  EXPECT_EQ(Write(two, core::PrepareGang{1, 1, 1}).error().code, Code::kExhausted);
  core::SetStatus ended;
  ended.status.ledger.attempt = 1;
  ended.status.ledger.outcome = core::Outcome::kSucceeded;
  ended.status.ledger.outcome_reason = core::Reason::kAllPodsSucceeded;
  ASSERT_TRUE(Write(one, ended).ok());
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(one)->observed.status.ended(); }));
  const auto prepared = Write(two, core::PrepareGang{1, 1, 1});
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
}

TEST_F(KubeBackendTest, EachJobOnTheHostNetworkKeepsItsPorts) {
  kube::KubeBackend::Options options = cluster_.BackendOptions();
  options.host_ports = {20000, 3 * wiring::kHostPortsPerRank};
  backend_ = Process(std::move(options));
  const auto submit = [&](const std::string& name, int32_t replicas) {
    api::TrainingJob job = cluster_.Job(name);
    job.spec.network.hostNetwork = true;
    job.spec.workers.replicas = replicas;
    const Key key = cluster_.Submit(job);
    Await(key);
    return key;
  };
  const auto first_port = [&](const std::string& pod) {
    const Json object = *cluster_.Get(kube::kPods, pod);
    return object["spec"]["containers"][0]["ports"][0]["hostPort"].get<int>();
  };
  const Key one = submit("one", 2);
  const Key two = submit("two", 1);
  const Key three = submit("three", 1);
  ASSERT_TRUE(Write(one, core::PrepareGang{1, 2, 2}).ok());
  ASSERT_TRUE(Write(two, core::PrepareGang{1, 1, 1}).ok());
  const auto none = Write(three, core::PrepareGang{1, 1, 1});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kExhausted) << none.error().message;
  ASSERT_TRUE(Write(one, core::CreatePod{"one-1-1", 1, 1, 2}).ok());
  ASSERT_TRUE(Write(two, core::CreatePod{"two-1-0", 1, 0, 1}).ok());
  EXPECT_EQ(first_port("one-1-1"), 20000 + wiring::kHostPortsPerRank);
  EXPECT_EQ(first_port("two-1-0"), 20000 + 2 * wiring::kHostPortsPerRank);
  backend_->Stop();

  options = cluster_.BackendOptions();
  options.host_ports = {20000, 1000};
  backend_ = Process(std::move(options));
  ASSERT_TRUE(Write(three, core::PrepareGang{1, 1, 1}).ok());
  ASSERT_TRUE(Write(three, core::CreatePod{"three-1-0", 1, 0, 1}).ok());
  EXPECT_EQ(first_port("three-1-0"), 20000 + 3 * wiring::kHostPortsPerRank)
      << "earlier jobs keep their ports";
  ASSERT_TRUE(Write(two, core::PrepareGang{2, 1, 1}).ok());
  ASSERT_TRUE(Write(two, core::CreatePod{"two-2-0", 2, 0, 1}).ok());
  EXPECT_EQ(first_port("two-2-0"), 20000 + 2 * wiring::kHostPortsPerRank) << "the same for the next attempt";
}

TEST_F(KubeBackendTest, NativeGangScheduling) {
  const Key key = cluster_.Submit(Gang("job", 3, "auto"));
  EXPECT_EQ(Await(key).provider, core::GangProvider::kScheduler);
  ASSERT_TRUE(Write(key, core::PrepareGang{1, 3, 2}).ok());
  const kube::Resource groups = kube::ResourceOf(kube::GangApi::kNative);
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
  BeginAttempt(rival, 1);
  AwaitRoom(key);
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
TEST_F(KubeBackendTest, ASmallerGangDoesNotOvertakeTheHeadOfTheQueue) {
  const Key runs = cluster_.Submit(Gang("runs", 1, "gate", 8));
  const Key large = cluster_.Submit(Gang("large", 2, "gate", 8));
  const Key small = cluster_.Submit(Gang("small", 1, "gate", 8));
  for (const Key& key : {runs, large, small}) BeginAttempt(key, 1);
  AwaitRoom(large);
  ASSERT_TRUE(Write(runs, core::ReserveRoom{1, {0}}).ok());
  EXPECT_EQ(FitOf(large).room, 1) << "now it waits";
  EXPECT_EQ(FitOf(small).room, 0);
  EXPECT_NE(FitOf(small).missing.find("kept for " + large.ToString()), std::string::npos)
      << FitOf(small).missing;
  EXPECT_EQ(Write(small, core::ReserveRoom{1, {0}}).error().code, Code::kConflict);
  std::atomic<bool> notified{false};
  backend_->Subscribe([&](const Key& changed) { notified = notified || changed == large; });
  BeginAttempt(runs, 2);  // gives up its place
  EXPECT_TRUE(Eventually([&] { return notified.load(); }));
  EXPECT_EQ(FitOf(small).room, 0);
  EXPECT_EQ(FitOf(large).room, 2);
  ASSERT_TRUE(Write(large, core::ReserveRoom{1, {0, 1}}).ok());
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
  const Key wide = submit("wide", 3);
  AwaitRoom(wide);
  EXPECT_NE(FitOf(wide).missing.find("3 x nvidia.com/gpu"), std::string::npos) << FitOf(wide).missing;
  const Key narrow = submit("narrow", 2);
  const std::vector<int32_t> all = {0, 1, core::RankInRole("chief", 0), core::RankInRole("ps", 0)};
  EXPECT_EQ(Write(wide, core::ReserveRoom{1, all}).error().code, Code::kConflict);
  ASSERT_TRUE(Write(narrow, core::ReserveRoom{1, all}).ok()) << FitOf(narrow).missing;
  EXPECT_EQ(FitOf(narrow).reserved, all);
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

TEST_F(KubeBackendTest, AMissingGangProviderIsPredicted) {
  const Key key = cluster_.Submit(Gang("job", 3, "volcano"));
  const core::Observed seen = Await(key);
  ASSERT_TRUE(seen.preflight.has_value());
  EXPECT_EQ(seen.preflight->kind, core::RefusalKind::kNoGangProvider);
  EXPECT_NE(seen.preflight->message.find("volcano"), std::string::npos) << seen.preflight->message;
}

TEST_F(KubeBackendTest, ThePodSecurityOfTheServerIsAskedBeforeAPodExists) {
  api::TrainingJob job = cluster_.Job("job");
  job.spec.network.hostNetwork = true;
  const Key key = cluster_.Submit(job);
  Await(key);
  const auto enforce = [&](const Json& level) {
    return cluster_.Wait([&](auto done) {
      cluster_.client().Patch(kube::kNamespaces, "", cluster_.space(), "", kube::ApiClient::PatchType::kMerge,
                              {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", level}}}}}},
                              done);
    });
  };
  ASSERT_TRUE(enforce("baseline").ok());
  const core::PrepareGang prepare{1, 1, 1};
  Result<Revision> refused = Revision{0};
  EXPECT_TRUE(Eventually([&] {
    refused = Write(key, prepare);
    return !refused.ok();
  }));
  EXPECT_EQ(core::ClassifyRefusal(refused.error()), core::RefusalKind::kPodSecurity);
  EXPECT_NE(refused.error().message.find("hostNetwork"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(Eventually([&] { return cluster_.Get(kube::kConfigMaps, wiring::ConfigName("job")).ok(); }));
  EXPECT_FALSE(backend_->Observe(key)->observed.prepared.has_value()) << "it asks again";
  EXPECT_EQ(cluster_.Get(kube::kPods, "job-1-0").error().code, Code::kNotFound);
  ASSERT_TRUE(enforce("privileged").ok());
  EXPECT_TRUE(Eventually([&] { return Write(key, prepare).ok(); }));
  EXPECT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.prepared == prepare; }));
}

TEST_F(KubeBackendTest, AnEndingNamespaceIsPredicted) {
  api::TrainingJob job = cluster_.Job("job");
  const Key key = cluster_.Submit(job);
  EXPECT_FALSE(Await(key).preflight.has_value());
  // A finalizer keeps the job and its namespace until the test removes it.
  const Json hold = {{"metadata", {{"finalizers", Json::array({"test.ringmaster.dev/hold"})}}}};
  const auto patch = [&](const Json& body) {
    return cluster_.Wait([&](auto done) {
      cluster_.client().Patch(kube::kJobs, cluster_.space(), "job", "", kube::ApiClient::PatchType::kMerge,
                              body, done);
    });
  };
  ASSERT_TRUE(patch(hold).ok());
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    cluster_.client().Delete(kube::kNamespaces, "", cluster_.space(), {}, done);
                  })
                  .ok());
  EXPECT_TRUE(Eventually([&] {
    const auto snapshot = backend_->Observe(key);
    return snapshot && snapshot->observed.preflight &&
           snapshot->observed.preflight->kind == core::RefusalKind::kNamespaceEnding;
  }));
  EXPECT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.job.deleted; }));
  ASSERT_TRUE(patch({{"metadata", {{"finalizers", nullptr}}}}).ok());
}

TEST_F(KubeBackendTest, JobsOfAnotherManagerAreIgnored) {
  api::TrainingJob job = cluster_.Job("theirs");
  job.spec.managedBy = "kueue.x-k8s.io/multikueue";
  const Key theirs = cluster_.Submit(job);
  const Key ours = cluster_.Submit(cluster_.Job("ours"));
  Await(ours);
  EXPECT_FALSE(backend_->Observe(theirs).has_value());
  const std::vector<Key> keys = backend_->Keys();
  EXPECT_NE(std::find(keys.begin(), keys.end(), ours), keys.end());
  EXPECT_EQ(std::find(keys.begin(), keys.end(), theirs), keys.end());
}

}  // namespace
}  // namespace ringmaster::conformance
