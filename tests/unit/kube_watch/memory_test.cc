// SPDX-License-Identifier: Apache-2.0

// The memory of 10,000 pods and 1,000 nodes, by the path that a list takes: text, pages of 500, decoders,
// stores and capacity. Prints the value, and asserts the limit of the operator's whole budget.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "api/codec.h"
#include "api/fields_status.h"
#include "operator/kube/backend/decode_job.h"
#include "operator/kube/backend/decode_node.h"
#include "operator/kube/backend/decode_pod.h"
#include "operator/kube/backend/status_codec.h"
#include "operator/kube/watch/lean_json.h"
#include "operator/kube/watch/store.h"
#include "tests/sanitized.h"

namespace ringmaster::kube {
namespace {

// With a sanitizer the path runs without a measurement.
constexpr int kShare = kSanitized ? 50 : 1;
constexpr int kPods = 10'000 / kShare;
constexpr int kNodes = 1'000 / kShare;
constexpr int kJobs = 1'000 / kShare;

void ExpectAtMost(size_t bytes, size_t limit) {
  if (kShare > 1) return;
  EXPECT_LE(bytes, limit);
}

size_t ResidentBytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// As large as pods of a real cluster: about 4 KB, half of it managedFields.
Json NumberedPod(int i, bool own) {
  const std::string job = fmt::format("pretraining-run-{:05}", i / 8);
  const std::string name =
      own ? fmt::format("{}-1-{}", job, i % 8) : fmt::format("web-frontend-7d9c8b-{:05}", i);
  Json fields = Json::object();
  for (int k = 0; k < 40; ++k)
    fields["f:spec"][fmt::format("k:{{\"name\":\"member-{}\"}}", k)] = {{"f:a", Json::object()}};
  Json labels = {{"app", "x"}, {"pod-template-hash", "7d9c8b"}};
  if (own) {
    labels = {{"ringmaster.dev/job", job},
              {"ringmaster.dev/attempt", "1"},
              {"ringmaster.dev/rank", std::to_string(i % 8)}};
  }
  return {
      {"metadata",
       {{"name", name},
        {"namespace", fmt::format("team-{}", i / 8 % 20)},
        {"uid", fmt::format("0a1b2c3d-4e5f-6789-abcd-{:012}", i)},
        {"resourceVersion", std::to_string(1000 + i)},
        {"creationTimestamp", "2026-01-01T00:00:00Z"},
        {"labels", labels},
        {"managedFields", Json::array({fields, fields})},
        {"ownerReferences", Json::array({{{"apiVersion", own ? "ringmaster.dev/v1alpha1" : "apps/v1"},
                                          {"kind", own ? "TrainingJob" : "ReplicaSet"},
                                          {"name", job},
                                          {"uid", fmt::format("1b1b2c3d-4e5f-6789-abcd-{:012}", i / 8)},
                                          {"controller", true}}})}}},
      {"spec",
       {{"nodeName", fmt::format("gpu-node-{:04}.cluster.internal", i % 1000)},
        {"containers",
         Json::array({{{"name", "worker"},
                       {"image", "registry.example.com/team/image:v1.2.3"},
                       {"env", Json::array({{{"name", "A"}, {"value", std::string(200, 'v')}}})},
                       {"resources",
                        {{"requests", {{"cpu", "8"}, {"memory", "64Gi"}, {"nvidia.com/gpu", "1"}}}}}}})}}},
      {"status",
       {{"phase", "Running"},
        {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}},
                                    {{"type", "Ready"}, {"status", "True"}},
                                    {{"type", "ContainersReady"}, {"status", "True"}},
                                    {{"type", "Initialized"}, {"status", "True"}}})},
        {"containerStatuses",
         Json::array(
             {{{"name", "worker"}, {"state", {{"running", {{"startedAt", "2026-01-01T00:00:10Z"}}}}}}})}}}};
}

Json NumberedNode(int i) {
  Json labels = Json::object();
  for (int k = 0; k < 25; ++k) labels[fmt::format("feature.node.example.com/property-{}", k)] = "true";
  labels["kubernetes.io/hostname"] = fmt::format("gpu-node-{:04}.cluster.internal", i);
  Json images = Json::array();
  for (int k = 0; k < 50; ++k)
    images.push_back({{"names", Json::array({fmt::format("registry.example.com/image-{}", k)})}});
  return {{"metadata",
           {{"name", fmt::format("gpu-node-{:04}.cluster.internal", i)},
            {"resourceVersion", std::to_string(i + 1)},
            {"labels", labels}}},
          {"spec", {{"taints", Json::array({{{"key", "nvidia.com/gpu"}, {"effect", "NoSchedule"}}})}}},
          {"status",
           {{"allocatable", {{"cpu", "128"}, {"memory", "1Ti"}, {"nvidia.com/gpu", "8"}, {"pods", "110"}}},
            {"images", images},
            {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}};
}

// A list in pages, each parsed, decoded and dropped.
template <class T>
void List(Store<T>& store, int count, const std::function<Json(int)>& make) {
  ReflectorSink& sink = store.In("");
  sink.Begin();
  for (int first = 0; first < count; first += 500) {
    std::string page;
    {
      Json items = Json::array();
      for (int i = first; i < std::min(first + 500, count); ++i) items.push_back(make(i));
      page = DumpJson({{"items", std::move(items)}});
    }
    const auto parsed = ParseLean(page);
    ASSERT_TRUE(parsed.ok());
    for (const Json& item : (*parsed)["items"]) sink.Item(item);
  }
  sink.End(100'000);
}

TEST(MemoryTest, TenThousandPodsAndAThousandNodes) {
  const WallClock clock(Now(), WallNow());
  const auto measure = [&](bool own) {
    Interners interners;
    typename Store<PodRecord>::Hooks pod_hooks;
    pod_hooks.decode = [&](const Json& object, const Meta& meta, const auto& before) {
      return DecodePod(object, meta, before, interners, clock, Now());
    };
    core::Capacity capacity;
    pod_hooks.changed = [&](const std::string&, const auto&, const auto& after) {
      capacity.SetPod(after->uid(), *after->requests, after->node());
    };
    pod_hooks.group = [](const PodRecord& record) {
      return record.own ? record.own->owner->job : std::string();
    };
    typename Store<NodeRecord>::Hooks node_hooks;
    node_hooks.decode = [&](const Json& object, const Meta& meta, const auto& before) {
      return DecodeNode(object, meta, before, clock, Now());
    };
    node_hooks.changed = [&](const std::string&, const auto&, const auto& after) {
      capacity.SetNode(after->facts);
    };
    Store<PodRecord> pods(std::move(pod_hooks));
    Store<NodeRecord> nodes(std::move(node_hooks));
    ::malloc_trim(0);
    const size_t before = ResidentBytes();
    List<PodRecord>(pods, kPods, [&](int i) { return NumberedPod(i, own); });
    List<NodeRecord>(nodes, kNodes, NumberedNode);
    EXPECT_EQ(pods.size(), size_t{kPods});
    EXPECT_EQ(nodes.size(), size_t{kNodes});
    const size_t peak = ResidentBytes() - before;
    ::malloc_trim(0);
    const size_t kept = ResidentBytes() - before;
    std::printf("%d %s pods and %d nodes: %.1f MiB kept, %.1f MiB with what the allocator holds\n", kPods,
                own ? "own" : "foreign", kNodes, static_cast<double>(kept) / (1 << 20),
                static_cast<double>(peak) / (1 << 20));
    return kept;
  };
  const size_t foreign = measure(false);
  const size_t own = measure(true);
  ExpectAtMost(own, size_t{64} << 20);
  ExpectAtMost(foreign, size_t{32} << 20);
}

// A running job as an API server returns it.
Json NumberedJob(int i, const WallClock& clock) {
  core::Status status;
  status.ledger.attempt = 1;
  status.ledger.gang_size = 8;
  for (Time* at : {&status.ledger.attempt_since, &status.ledger.accounted}) *at = Now();
  status.ledger.start_time = status.ledger.ready_since = status.ledger.active_since = Now();
  status.display.phase = core::Phase::kRunning;
  for (core::Condition& condition : status.display.conditions)
    condition = {core::Truth::kTrue, core::Reason::kAllPodsRunning, "this framework does not report it",
                 Now()};
  const std::string name = fmt::format("pretraining-run-{:05}", i);
  Json containers = Json::array({{{"name", "worker"},
                                  {"image", "registry.example.com/team/image:v1.2.3"},
                                  {"command", Json::array({"torchrun", "train.py"})},
                                  {"resources", {{"limits", {{"nvidia.com/gpu", 8}}}}}}});
  return {{"metadata",
           {{"name", name},
            {"namespace", fmt::format("team-{}", i % 20)},
            {"uid", fmt::format("1b1b2c3d-4e5f-6789-abcd-{:012}", i)},
            {"generation", 1},
            {"resourceVersion", std::to_string(1000 + i)},
            {"creationTimestamp", "2026-01-01T00:00:00Z"}}},
          {"spec",
           {{"framework", "pytorch"},
            {"launch", {{"kind", "none"}}},
            {"workers", {{"replicas", 8}, {"template", {{"spec", {{"containers", containers}}}}}}}}},
          {"status", api::WriteValue(EncodeStatus(status, api::TrainingJob(), clock))}};
}

TEST(MemoryTest, AThousandJobsOfEightPods) {
  const WallClock clock(Now(), WallNow());
  Interners interners;
  core::Capacity capacity;
  Store<JobRecord>::Hooks job_hooks;
  job_hooks.decode = [&](const Json& object, const Meta& meta, const auto& before) {
    return DecodeJob(object, meta, before, clock, Now());
  };
  Store<PodRecord>::Hooks pod_hooks;
  pod_hooks.decode = [&](const Json& object, const Meta& meta, const auto& before) {
    return DecodePod(object, meta, before, interners, clock, Now());
  };
  pod_hooks.group = [](const PodRecord& record) { return record.own->owner->job; };
  pod_hooks.changed = [&](const std::string&, const auto&, const auto& after) {
    capacity.SetPod(after->uid(), *after->requests, after->node());
  };
  Store<JobRecord> jobs(std::move(job_hooks));
  Store<PodRecord> pods(std::move(pod_hooks));
  ::malloc_trim(0);
  const size_t before = ResidentBytes();
  List<JobRecord>(jobs, kJobs, [&](int i) { return NumberedJob(i, clock); });
  List<PodRecord>(pods, kJobs * 8, [&](int i) { return NumberedPod(i, true); });
  EXPECT_EQ(jobs.size(), size_t{kJobs});
  EXPECT_EQ(pods.size(), size_t{kJobs} * 8);
  ::malloc_trim(0);
  const size_t kept = ResidentBytes() - before;
  std::printf("%d jobs of 8 pods: %.1f MiB kept\n", kJobs, static_cast<double>(kept) / (1 << 20));
  ExpectAtMost(kept, size_t{14} << 20);
}

TEST(MemoryTest, TenThousandJobs) {
  const WallClock clock(Now(), WallNow());
  Store<JobRecord>::Hooks hooks;
  hooks.decode = [&](const Json& object, const Meta& meta, const auto& before) {
    return DecodeJob(object, meta, before, clock, Now());
  };
  Store<JobRecord> jobs(std::move(hooks));
  ::malloc_trim(0);
  const size_t before = ResidentBytes();
  List<JobRecord>(jobs, kJobs * 10, [&](int i) { return NumberedJob(i, clock); });
  EXPECT_EQ(jobs.size(), size_t{kJobs} * 10);
  ::malloc_trim(0);
  const size_t kept = ResidentBytes() - before;
  std::printf("%d jobs: %.1f MiB kept\n", kJobs * 10, static_cast<double>(kept) / (1 << 20));
  ExpectAtMost(kept, size_t{80} << 20);
}

}  // namespace
}  // namespace ringmaster::kube
