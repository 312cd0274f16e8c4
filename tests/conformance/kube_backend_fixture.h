// SPDX-License-Identifier: Apache-2.0

// A kube backend on the API server of the test, and helpers to read and write through it.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "tests/conformance/test_cluster.h"

namespace ringmaster::conformance {

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
  void WriteLedger(const Key& key, core::Ledger ledger) {
    Await(key);
    core::SetStatus set;
    set.status.ledger = std::move(ledger);
    const Result<Revision> written = Write(key, set);
    ASSERT_TRUE(written.ok()) << CodeName(written.error().code) << ": " << written.error().message;
  }
  void BeginAttempt(const Key& key, int64_t attempt) {
    core::Ledger ledger;
    ledger.attempt = attempt;
    WriteLedger(key, ledger);
    // As the controller does before its next decision.
    ASSERT_TRUE(
        Eventually([&] { return backend_->TakeTurn(key)->observed.status.ledger.attempt == attempt; }));
  }
  // The job ends, and gives up its places. A next attempt would wait for room before the others.
  void End(const Key& key) {
    core::Ledger ledger = backend_->Observe(key)->observed.status.ledger;
    ledger.outcome = core::Outcome::kSucceeded;
    WriteLedger(key, ledger);
  }
  // Waits until the pods of earlier tests have left the two nodes.
  void AwaitRoom(const Key& key) {
    ASSERT_TRUE(Eventually([&] { return FitOf(key).room == 2; })) << FitOf(key).missing;
  }
  core::Fit FitOf(const Key& key) { return backend_->TakeTurn(key)->observed.fit; }
  Json PlainPod(const std::string& name) {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name}}},
            {"spec", {{"containers", Json::array({{{"name", "x"}, {"image", "x"}}})}}}};
  }

  TestCluster cluster_;
  std::unique_ptr<kube::KubeBackend> backend_;
};

}  // namespace ringmaster::conformance
