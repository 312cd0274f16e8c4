// SPDX-License-Identifier: Apache-2.0

// The conformance suite for the kube backend, on a real API server. This file reports the end of pods to the
// API server, as a kubelet would.
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/time.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/test_cluster.h"

namespace ringmaster::conformance {
namespace {

class KubeHarness final : public Harness {
 public:
  KubeHarness()
      : backend_(std::make_unique<kube::KubeBackend>(cluster_.client(), cluster_.BackendOptions())) {
    backend_->Subscribe([this](const control::Key& key) {
      EndPods(key);
      changed_.notify_all();
    });
    backend_->Start();
    CHECK(Await([&] { return backend_->Synced(); }), "never synced");
  }
  ~KubeHarness() override { backend_->Stop(); }

  control::Backend& backend() override { return *backend_; }

  control::Key Submit(const std::string& name) override { return cluster_.Submit(cluster_.Job(name)); }

  control::Key SubmitForGate(const std::string& name) override {
    api::TrainingJob job = cluster_.Job(name);
    job.spec.scheduling.gang = "gate";
    return cluster_.Submit(job);
  }

  void DeleteJob(const control::Key& key) override { Delete(kube::kJobs, key.name); }

  bool HasGates() const override { return true; }

  bool DamageSupport(const control::Key& key) override {
    Delete(kube::kConfigMaps, wiring::ConfigName(key.name));
    return true;
  }

  bool Enqueue(const control::Key& key, const std::string& queue) override {
    cluster_.InstallKueue();
    Patch(kube::kJobs, key.name, "", {{"metadata", {{"labels", {{wiring::kQueueNameLabel, queue}}}}}});
    return true;
  }

  void Admit(const control::Key& key) override {
    const core::Workload workload = backend_->Observe(key)->observed.quota->workloads.front();
    Json assignments = Json::array();
    for (const core::PodSet& set : workload.pod_sets)
      assignments.push_back({{"name", set.name}, {"count", set.count}});
    Json conditions = Json::array();
    for (const char* type : {"QuotaReserved", "Admitted"})
      conditions.push_back({{"type", type}, {"status", "True"}, {"reason", type}, {"message", ""}});
    Patch(kube::kWorkloads, workload.name, "status",
          {{"status",
            {{"conditions", conditions},
             {"admission", {{"clusterQueue", "all"}, {"podSetAssignments", assignments}}}}}});
  }

  bool Await(const std::function<bool()>& condition) override {
    const Time limit = Now() + seconds(60);
    std::unique_lock lock(mutex_);
    while (!condition()) {
      if (Now() >= limit) return false;
      changed_.wait_for(lock, milliseconds(20));
    }
    return true;
  }

 private:
  void Patch(const kube::Resource& resource, const std::string& name, const std::string& subresource,
             const Json& body) {
    const auto patched = cluster_.Wait([&](auto done) {
      cluster_.client().Patch(resource, cluster_.space(), name, subresource,
                              kube::ApiClient::PatchType::kMerge, body, done);
    });
    EXPECT_TRUE(patched.ok()) << patched.error().message;
  }

  void Delete(const kube::Resource& resource, const std::string& name) {
    const auto gone = cluster_.Wait(
        [&](auto done) { cluster_.client().Delete(resource, cluster_.space(), name, {}, done); });
    EXPECT_TRUE(gone.ok()) << gone.error().message;
  }

  // Ends each running pod once.
  void EndPods(const control::Key& key) {
    if (key.namespace_ != cluster_.space()) return;
    const auto snapshot = backend_->Observe(key);
    if (!snapshot) return;
    for (const core::Pod& pod : snapshot->observed.pods) {
      if (pod.phase != core::PodPhase::kRunning) continue;
      if (pod.rank != kSucceeds && pod.rank != kFails && pod.rank != kCrashes) continue;
      {
        std::lock_guard lock(ended_mutex_);
        if (!ended_.insert(pod.uid).second) continue;
      }
      const int code = pod.rank == kSucceeds ? 0 : pod.rank == kFails ? 7 : 137;
      const Json end = {{"exitCode", code},
                        {"reason", code == 0 ? "Completed" : "Error"},
                        {"message", pod.rank == kFails ? kTerminationMessage : ""},
                        {"finishedAt", kube::WallSecondsText(kube::WallNow())}};
      const Json patch = {
          {"status",
           {{"phase", code == 0 ? "Succeeded" : "Failed"},
            {"containerStatuses", Json::array({{{"name", "worker"},
                                                {"ready", false},
                                                {"started", false},
                                                {"state", {{"running", nullptr}, {"terminated", end}}}}})}}}};
      cluster_.client().Patch(
          kube::kPods, cluster_.space(), pod.name, "status", kube::ApiClient::PatchType::kStrategic, patch,
          [](const Result<Json>& result) { EXPECT_TRUE(result.ok()) << result.error().message; });
    }
  }

  TestCluster cluster_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mutex ended_mutex_;
  std::set<std::string> ended_;
  std::unique_ptr<kube::KubeBackend> backend_;
};

std::unique_ptr<Harness> MakeKube() { return std::make_unique<KubeHarness>(); }

INSTANTIATE_TEST_SUITE_P(Kube, BackendConformance, testing::Values(MakeKube));

}  // namespace
}  // namespace ringmaster::conformance
