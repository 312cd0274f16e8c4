// SPDX-License-Identifier: Apache-2.0

// Features of the kube backend alone: owners, strays, host ports, Pod Security, a second process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/rules.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"
#include "tests/conformance/kube_backend_fixture.h"

namespace ringmaster::conformance {
namespace {

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

// The same of its Workload: without its quota the gang would stop, and could not ask for another one.
TEST_F(KubeBackendTest, AWorkloadWithoutItsLabelIsStillTheJobs) {
  cluster_.InstallKueue();
  api::TrainingJob job = cluster_.Job("job");
  job.metadata.labels[wiring::kQueueNameLabel] = "queue";
  const Key key = cluster_.Submit(job);
  Await(key);
  const auto quota = [&] { return backend_->Observe(key)->observed.quota; };
  ASSERT_TRUE(Eventually([&] { return quota() && quota()->api == core::Quota::Api::kRead; }));
  core::MakeWorkload make;
  make.queue = "queue";
  make.pod_sets = {{core::kWorkerSet, 1, 0}};
  const auto made = Write(key, make);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(Eventually([&] { return quota()->workloads.size() == 1; }));
  const core::Workload before = quota()->workloads[0];
  const Json unlabelled = {{"metadata", {{"labels", {{wiring::kJobLabel, nullptr}}}}}};
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    cluster_.client().Patch(kube::kWorkloads, cluster_.space(), before.name, "",
                                            kube::ApiClient::PatchType::kMerge, unlabelled, done);
                  })
                  .ok());
  ASSERT_TRUE(Eventually(
      [&] { return quota()->workloads.empty() || quota()->workloads[0].revision > before.revision; }));
  ASSERT_EQ(quota()->workloads.size(), 1U);
  auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  backend_->ReadThrough(key, [answer](Status status) { answer->set_value(std::move(status)); });
  ASSERT_TRUE(future.get().ok());
  ASSERT_EQ(quota()->workloads.size(), 1U) << "a live read finds it, too";
  // So does the next process, and it can let go of it.
  backend_->Stop();
  backend_ = Process(cluster_.BackendOptions());
  Await(key);
  ASSERT_TRUE(Eventually([&] { return quota() && quota()->workloads.size() == 1; }));
  ASSERT_TRUE(Write(key, core::DeleteWorkload{before.name, before.uid}).ok());
  ASSERT_TRUE(Write(key, core::ReleaseWorkload{before.name, before.uid}).ok());
  EXPECT_TRUE(Eventually([&] { return quota()->workloads.empty(); }));
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

TEST_F(KubeBackendTest, ThePodSecurityOfTheServerIsAskedForAGangThatWaitsForRoom) {
  api::TrainingJob job = cluster_.Job("job");
  job.spec.scheduling.gang = "gate";
  job.spec.network.hostNetwork = true;
  const Key key = cluster_.Submit(job);
  EXPECT_TRUE(Await(key).untried) << "there may be no ports for it";
  const auto enforce = [&](const Json& level) {
    return cluster_.Wait([&](auto done) {
      cluster_.client().Patch(kube::kNamespaces, "", cluster_.space(), "", kube::ApiClient::PatchType::kMerge,
                              {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", level}}}}}},
                              done);
    });
  };
  const core::TryPods ask{1, 1};
  ASSERT_TRUE(Write(key, ask).ok());
  EXPECT_FALSE(backend_->Observe(key)->observed.untried);
  ASSERT_TRUE(enforce("baseline").ok());
  ASSERT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.untried; }));
  const auto refused = Write(key, ask);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(core::ClassifyRefusal(refused.error()), core::RefusalKind::kPodSecurity);
  EXPECT_TRUE(backend_->Observe(key)->observed.untried) << "it asks again";
  EXPECT_EQ(cluster_.Get(kube::kConfigMaps, wiring::ConfigName("job")).error().code, Code::kNotFound);
  EXPECT_EQ(cluster_.Get(kube::kPods, "job-1-0").error().code, Code::kNotFound);
  ASSERT_TRUE(enforce("privileged").ok());
  EXPECT_TRUE(Eventually([&] { return !backend_->Observe(key)->observed.untried; }));
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

TEST_F(KubeBackendTest, AJobWithoutALabelIsInTheDefaultQueue) {
  cluster_.InstallKueue();
  api::TrainingJob labelled = cluster_.Job("labelled");  // makes the backend ask for Kueue's API
  labelled.metadata.labels[wiring::kQueueNameLabel] = "q";
  cluster_.Submit(labelled);
  const Key key = cluster_.Submit(cluster_.Job("plain"));
  EXPECT_FALSE(Await(key).quota.has_value());
  const auto make = [&](const char* name) {
    return cluster_
        .Create(kube::kLocalQueues, {{"apiVersion", "kueue.x-k8s.io/v1beta2"},
                                     {"kind", "LocalQueue"},
                                     {"metadata", {{"name", name}}},
                                     {"spec", {{"clusterQueue", "all"}}}})
        .ok();
  };
  ASSERT_TRUE(make("other"));
  ASSERT_TRUE(make("default"));
  const auto in_default = [&] {
    const core::Observed observed = backend_->Observe(key)->observed;
    return observed.quota && observed.quota->queue == "default" && observed.quota->defaulted;
  };
  EXPECT_TRUE(Eventually(in_default));
  // Its own label counts.
  ASSERT_TRUE(cluster_
                  .Wait([&](auto done) {
                    cluster_.client().Patch(
                        kube::kJobs, cluster_.space(), "plain", "", kube::ApiClient::PatchType::kMerge,
                        {{"metadata", {{"labels", {{wiring::kQueueNameLabel, "q"}}}}}}, done);
                  })
                  .ok());
  EXPECT_TRUE(Eventually([&] { return backend_->Observe(key)->observed.quota->queue == "q"; }));
}

// MultiKueue expects of us that we ask for its quota.
TEST_F(KubeBackendTest, AJobOfMultiKueueIsKnownByItsQueue) {
  api::TrainingJob job = cluster_.Job("remote");
  job.spec.managedBy = wiring::kMultiKueue;
  job.metadata.labels[wiring::kQueueNameLabel] = "q";
  const core::Observed observed = Await(cluster_.Submit(job));
  EXPECT_TRUE(observed.job.remote);
  EXPECT_EQ(observed.quota->queue, "q");
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
