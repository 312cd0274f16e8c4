// SPDX-License-Identifier: Apache-2.0

// Decodes API objects: tables of what kubelets, schedulers and node controllers write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "operator/kube/backend/decode_node.h"
#include "operator/kube/backend/decode_pod.h"
#include "rendezvous/messages.h"

namespace ringmaster::kube {
namespace {

using core::PodPhase;

// Steady second 10000 is 2026-01-01T00:00:00Z.
const WallClock kClock(Time(seconds(10'000)), *ParseWallTime("2026-01-01T00:00:00Z"));
constexpr Time kNow = Time(seconds(10'000));
Time At(int offset_s) { return kNow + seconds(offset_s); }

Json PodJson(const char* spec, const char* status, const char* metadata = "{}") {
  Json pod = {
      {"metadata",
       {{"name", "gpt-3-1"},
        {"namespace", "ml"},
        {"uid", "pod-uid"},
        {"resourceVersion", "77"},
        {"creationTimestamp", "2025-12-31T23:50:00Z"},
        {"labels",
         {{"ringmaster.dev/job", "gpt"}, {"ringmaster.dev/attempt", "3"}, {"ringmaster.dev/rank", "1"}}},
        {"ownerReferences", Json::array({{{"kind", "Other"}, {"uid", "x"}},
                                         {{"apiVersion", "ringmaster.dev/v1alpha1"},
                                          {"kind", "TrainingJob"},
                                          {"name", "gpt"},
                                          {"uid", "job-uid"},
                                          {"controller", true}}})}}},
      {"spec", Json::parse(spec)},
      {"status", Json::parse(status)}};
  pod["metadata"].update(Json::parse(metadata));
  return pod;
}

std::shared_ptr<const PodRecord> Decode(const Json& pod,
                                        const std::shared_ptr<const PodRecord>& before = nullptr,
                                        Time now = kNow) {
  Interners interners;
  return DecodePod(pod, ReadMeta(pod), before, interners, kClock, now);
}

core::Pod Core(const Json& pod) {
  const auto record = Decode(pod);
  EXPECT_TRUE(record && record->own);
  return record && record->own ? record->own->ToCore() : core::Pod();
}

constexpr const char* kBound = R"({"nodeName":"node-1","containers":[{"name":"worker"}]})";

TEST(DecodePodTest, RunningPod) {
  const Json json = PodJson(kBound, R"({"phase":"Running","conditions":[
      {"type":"PodScheduled","status":"True","lastTransitionTime":"2025-12-31T23:51:00Z"},
      {"type":"Ready","status":"False"},{"type":"DisruptionTarget","status":"True"}],
      "containerStatuses":[{"name":"worker","state":{"running":{"startedAt":"2025-12-31T23:52:00Z"}}}]})");
  const auto record = Decode(json);
  ASSERT_TRUE(record && record->own);
  EXPECT_EQ(record->own->owner->job, "ml/gpt");
  EXPECT_EQ(record->own->owner->uid, "job-uid");
  EXPECT_EQ(record->own->shape, nullptr);
  const core::Pod pod = record->own->ToCore();
  EXPECT_EQ(pod.name, "gpt-3-1");
  EXPECT_EQ(pod.uid, "pod-uid");
  EXPECT_EQ(pod.attempt, 3);
  EXPECT_EQ(pod.rank, 1);
  EXPECT_EQ(pod.phase, PodPhase::kRunning);
  EXPECT_EQ(pod.node, "node-1");
  EXPECT_EQ(pod.created, At(-600));
  EXPECT_EQ(pod.placed, At(-540));
  EXPECT_EQ(pod.started, At(-480));
  EXPECT_EQ(pod.conditions, (std::vector<std::string>{"PodScheduled", "DisruptionTarget"}));
  EXPECT_EQ(pod.waiting_reason, "");
  EXPECT_FALSE(pod.ended || pod.deleting() || pod.gated);
}

// Linkerd, Istio and other webhooks add containers, some of them before all others.
TEST(DecodePodTest, TheWorkerIsTheContainerThatThePodWasCreatedWith) {
  const auto pod = [](const char* worker, const char* names, const char* annotation) {
    const Json json = PodJson(fmt::format(R"({{"nodeName":"node-1","containers":[{}]}})", names).c_str(),
                              fmt::format(R"({{"phase":"Running","containerStatuses":[
          {{"name":"proxy","state":{{"running":{{"startedAt":"2025-12-31T23:52:00Z"}}}}}},
          {{"name":"{}","state":{{"terminated":{{"exitCode":3,"finishedAt":"2025-12-31T23:59:00Z"}}}}}}]}})",
                                          worker)
                                  .c_str(),
                              annotation);
    return Core(json);
  };
  const core::Pod injected = pod("main", R"({"name":"proxy"},{"name":"main"})",
                                 R"({"annotations":{"ringmaster.dev/worker-container":"main"}})");
  EXPECT_EQ(injected.phase, PodPhase::kFailed);
  EXPECT_EQ(injected.exit_code, 3);
  EXPECT_TRUE(injected.lingers);
  // A sidecar may even have the usual name of the worker.
  const Json other = PodJson(R"({"nodeName":"node-1","containers":[{"name":"worker"},{"name":"main"}]})",
                             R"({"phase":"Running","containerStatuses":[
          {"name":"main","state":{"running":{"startedAt":"2025-12-31T23:52:00Z"}}},
          {"name":"worker","state":{"terminated":{"exitCode":0,"finishedAt":"2025-12-31T23:59:00Z"}}}]})",
                             R"({"annotations":{"ringmaster.dev/worker-container":"main"}})");
  EXPECT_EQ(Core(other).phase, PodPhase::kRunning);
  // Pods of older versions have no such annotation, and one may name no container.
  for (const char* annotation : {"{}", R"({"annotations":{"ringmaster.dev/worker-container":"gone"}})"})
    EXPECT_EQ(pod("main", R"({"name":"main"},{"name":"proxy"})", annotation).exit_code, 3) << annotation;
}

struct EndCase {
  const char* what;
  const char* status;
  PodPhase phase;
  int32_t exit_code;
  const char* reason;
  const char* message;
};

TEST(DecodePodTest, HowPodsEnd) {
  const EndCase cases[] = {
      {"a code and a termination message",
       R"({"phase":"Failed","containerStatuses":[{"name":"worker","state":{"terminated":
          {"exitCode":7,"reason":"Error","message":"out of cheese","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 7, "Error", "out of cheese"},
      {"success", R"({"phase":"Succeeded","containerStatuses":[{"name":"worker","state":{"terminated":
          {"exitCode":0,"reason":"Completed","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kSucceeded, 0, "Completed", ""},
      {"killed for memory and yet code 0: a shell in between",
       R"({"phase":"Succeeded","containerStatuses":[{"name":"worker","state":{"terminated":
          {"exitCode":0,"reason":"OOMKilled","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 137, "OOMKilled", ""},
      {"a sidecar failed, the worker did not",
       R"({"phase":"Failed","containerStatuses":[
          {"name":"proxy","state":{"terminated":{"exitCode":3,"reason":"Error","finishedAt":"2025-12-31T23:59:00Z"}}},
          {"name":"worker","state":{"terminated":{"exitCode":0,"finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kSucceeded, 0, "", ""},
      {"the worker failed while a sidecar runs",
       R"({"phase":"Running","containerStatuses":[
          {"name":"proxy","state":{"running":{"startedAt":"2025-12-31T23:58:00Z"}}},
          {"name":"worker","state":{"terminated":{"exitCode":3,"reason":"Error","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 3, "Error", ""},
      {"evicted, and the worker ended with 0 on SIGTERM",
       R"({"phase":"Failed","reason":"Evicted","containerStatuses":[{"name":"worker","state":{"terminated":
          {"exitCode":0,"reason":"Completed","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 137, "Evicted", ""},
      {"both failed: the worker's counts",
       R"({"phase":"Failed","containerStatuses":[
          {"name":"proxy","state":{"terminated":{"exitCode":3,"finishedAt":"2025-12-31T23:59:00Z"}}},
          {"name":"worker","state":{"terminated":{"exitCode":75,"finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 75, "", ""},
      {"an init container failed",
       R"({"phase":"Failed","initContainerStatuses":[{"name":"fetch","state":{"terminated":
          {"exitCode":64,"reason":"Error","message":"no such bucket","finishedAt":"2025-12-31T23:59:00Z"}}}],
          "containerStatuses":[{"name":"worker","state":{"waiting":{"reason":"PodInitializing"}}}]})",
       PodPhase::kFailed, 64, "Error", "no such bucket"},
      {"evicted before anything ran",
       R"({"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."})",
       PodPhase::kFailed, 137, "Evicted", "The node was low on resource: memory."},
      {"another container name",
       R"({"phase":"Failed","containerStatuses":[{"name":"trainer","state":{"terminated":
          {"exitCode":9,"reason":"Error","finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, 9, "Error", ""},
      {"an absurd code", R"({"phase":"Failed","containerStatuses":[{"name":"worker","state":{"terminated":
          {"exitCode":99999999999,"finishedAt":"2025-12-31T23:59:00Z"}}}]})",
       PodPhase::kFailed, INT32_MAX, "", ""},
  };
  for (const EndCase& c : cases) {
    SCOPED_TRACE(c.what);
    const core::Pod pod = Core(PodJson(kBound, c.status));
    EXPECT_EQ(pod.phase, c.phase);
    EXPECT_EQ(pod.exit_code, c.exit_code);
    EXPECT_EQ(pod.ended_reason, c.reason);
    EXPECT_EQ(pod.message, c.message);
    ASSERT_TRUE(pod.ended.has_value());
    EXPECT_LE(*pod.ended, kNow);
  }
}

TEST(DecodePodTest, TheWorkerDecidesAboutAPodWithOtherContainers) {
  constexpr const char* kSpec = R"({"nodeName":"n","containers":[{"name":"train"},{"name":"metrics"}]})";
  // Statuses are sorted by name, so the worker's is not the first.
  const auto pod = [&](const char* phase, const char* state) {
    const Json status = {{"phase", phase},
                         {"containerStatuses",
                          Json::array({{{"name", "metrics"},
                                        {"state", {{"running", {{"startedAt", "2025-12-31T23:58:00Z"}}}}}},
                                       {{"name", "train"}, {"state", Json::parse(state)}}})}};
    return Core(PodJson(kSpec, status.dump().c_str()));
  };
  const core::Pod running = pod("Running", R"({"running":{"startedAt":"2025-12-31T23:58:00Z"}})");
  EXPECT_EQ(running.phase, PodPhase::kRunning);
  EXPECT_FALSE(running.lingers);
  const core::Pod done =
      pod("Running", R"({"terminated":{"exitCode":0,"finishedAt":"2025-12-31T23:59:00Z"}})");
  EXPECT_EQ(done.phase, PodPhase::kSucceeded);
  EXPECT_TRUE(done.lingers);
  EXPECT_EQ(done.ended, At(-60));
  const core::Pod failed = pod("Running", R"({"terminated":{"exitCode":5}})");
  EXPECT_EQ(failed.phase, PodPhase::kFailed);
  EXPECT_EQ(failed.exit_code, 5);
  EXPECT_TRUE(failed.lingers);
  EXPECT_FALSE(pod("Failed", R"({"terminated":{"exitCode":5}})").lingers);
}

TEST(DecodePodTest, AnAgentNotesThatTheJobIsFinished) {
  const std::string note(rendezvous::kFinishedNote);
  const auto finished = [](int exit_code, const std::string& message) {
    const Json end = {{"terminated", {{"exitCode", exit_code}, {"message", message}}}};
    const Json status = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                         {"containerStatuses", Json::array({{{"name", "worker"}, {"state", end}}})}};
    return Core(PodJson(kBound, status.dump().c_str())).finished;
  };
  EXPECT_TRUE(finished(0, note));
  EXPECT_TRUE(finished(0, std::string(5000, 'x') + "\n" + note + "\n")) << "the program wrote more";
  EXPECT_FALSE(finished(0, ""));
  EXPECT_FALSE(finished(0, note + "\nand more"));
  EXPECT_FALSE(finished(0, "not " + note));
  EXPECT_FALSE(finished(1, note));
}

TEST(DecodePodTest, AContainerThatItsRuntimeLost) {
  const auto pod = [](int exit_code, const char* reason) {
    return Core(PodJson(kBound, fmt::format(R"({{"phase":"Failed","containerStatuses":[{{"name":"worker",
        "state":{{"terminated":{{"exitCode":{},"reason":"{}"}}}}}}]}})",
                                            exit_code, reason)
                                    .c_str()));
  };
  EXPECT_TRUE(pod(255, "Unknown").lost);
  EXPECT_TRUE(pod(137, "ContainerStatusUnknown").lost);
  EXPECT_FALSE(pod(255, "Error").lost);
  EXPECT_FALSE(pod(1, "Unknown").lost);
}

struct WaitCase {
  const char* what;
  const char* spec;
  const char* status;
  const char* reason;
  const char* message;
};

TEST(DecodePodTest, WhyPodsDoNotRun) {
  const WaitCase cases[] = {
      {"image", kBound, R"({"phase":"Pending","containerStatuses":[{"name":"worker","state":{"waiting":
          {"reason":"ImagePullBackOff","message":"Back-off pulling image \"x\""}}}]})",
       "ImagePullBackOff", "Back-off pulling image \"x\""},
      {"one on its coder, one stuck", kBound,
       R"({"phase":"Pending","containerStatuses":[
          {"name":"worker","state":{"waiting":{"reason":"ContainerCreating"}}},
          {"name":"proxy","state":{"waiting":{"reason":"CreateContainerConfigError","message":"no secret"}}}]})",
       "CreateContainerConfigError", "no secret"},
      {"on its coder", kBound,
       R"({"phase":"Pending","containerStatuses":[{"name":"worker","state":{"waiting":{"reason":"ContainerCreating"}}}]})",
       "ContainerCreating", ""},
      {"no node", R"({"containers":[]})",
       R"({"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",
          "message":"0/4 nodes are available"}]})",
       "Unschedulable", "0/4 nodes are available"},
      {"nothing known", R"({"containers":[]})", R"({"phase":"Pending"})", "", ""},
  };
  for (const WaitCase& c : cases) {
    SCOPED_TRACE(c.what);
    const core::Pod pod = Core(PodJson(c.spec, c.status));
    EXPECT_EQ(pod.phase, PodPhase::kPending);
    EXPECT_EQ(pod.waiting_reason, c.reason);
    EXPECT_EQ(pod.waiting_message, c.message);
  }
}

TEST(DecodePodTest, WhichSchedulerAPodAwaits) {
  constexpr const char* kVolcano = R"({"schedulerName":"volcano","containers":[]})";
  EXPECT_EQ(Core(PodJson(kVolcano, R"({"phase":"Pending"})")).awaits_scheduler, "volcano");
  for (const char* reason : {"Unschedulable", "Schedulable", "SchedulingGated"})
    EXPECT_EQ(Core(PodJson(kVolcano, fmt::format(R"({{"phase":"Pending","conditions":[{{"type":"PodScheduled",
                               "status":"False","reason":"{}"}}]}})",
                                                 reason)
                                         .c_str()))
                  .awaits_scheduler,
              "")
        << reason;
  EXPECT_EQ(
      Core(PodJson(R"({"schedulerName":"volcano","nodeName":"n","containers":[]})", R"({"phase":"Pending"})"))
          .awaits_scheduler,
      "");
}

TEST(DecodePodTest, OnlyOurGateCounts) {
  EXPECT_TRUE(Core(PodJson(R"({"schedulingGates":[{"name":"a/b"},{"name":"ringmaster.dev/gang"}]})",
                           R"({"phase":"Pending"})"))
                  .gated);
  EXPECT_FALSE(Core(PodJson(R"({"schedulingGates":[{"name":"a/b"}]})", R"({"phase":"Pending"})")).gated);
}

TEST(DecodePodTest, DeletionEndsWithinItsGraceForAnyClock) {
  const char* metadata = R"({"deletionTimestamp":"2026-01-01T00:00:20Z","deletionGracePeriodSeconds":30})";
  const Json json = PodJson(kBound, R"({"phase":"Running"})", metadata);
  const auto first = Decode(json);
  EXPECT_EQ(first->own->pod.delete_by, At(20));
  // The server's clock is an hour ahead.
  const char* ahead = R"({"deletionTimestamp":"2026-01-01T01:00:20Z","deletionGracePeriodSeconds":30})";
  const Json skewed = PodJson(kBound, R"({"phase":"Running"})", ahead);
  const auto early = Decode(skewed);
  EXPECT_EQ(early->own->pod.delete_by, At(30));
  // Seen again later, it is the same deletion. A shorter grace period is a new one.
  EXPECT_EQ(Decode(skewed, early, At(25))->own->pod.delete_by, At(30));
  const char* shorter = R"({"deletionTimestamp":"2026-01-01T00:59:50Z","deletionGracePeriodSeconds":0})";
  EXPECT_EQ(Decode(PodJson(kBound, R"({"phase":"Running"})", shorter), early, At(26))->own->pod.delete_by,
            At(26));
}

TEST(DecodePodTest, WhetherAPodEndedBeforeItsDeletion) {
  const auto json = [](const char* finished, const char* metadata) {
    return PodJson(kBound,
                   fmt::format(R"({{"phase":"Succeeded","containerStatuses":[{{"name":"worker","state":
        {{"terminated":{{"exitCode":0,"finishedAt":"{}"}}}}}}]}})",
                               finished)
                       .c_str(),
                   metadata);
  };
  const char* deleted = R"({"finalizers":["other","ringmaster.dev/job-tracking"],
      "deletionTimestamp":"2025-12-31T23:59:40Z","deletionGracePeriodSeconds":10})";  // requested at :30
  const core::Pod early = Core(json("2025-12-31T23:59:29Z", deleted));
  EXPECT_TRUE(early.tracked && early.deleting() && early.collected);
  EXPECT_FALSE(early.interrupted());
  EXPECT_TRUE(Core(json("2025-12-31T23:59:30Z", deleted)).interrupted()) << "in the second of its SIGTERM";
  const core::Pod kept = Core(json("2025-12-31T23:59:30Z", "{}"));
  EXPECT_FALSE(kept.tracked || kept.collected || kept.interrupted());
  // The order of the events is better than the clocks.
  const auto ended = Decode(json("2025-12-31T23:59:59Z", "{}"));
  EXPECT_TRUE(Decode(json("2025-12-31T23:59:59Z", deleted), ended)->own->ToCore().collected);
  const auto ending = Decode(PodJson(kBound, R"({"phase":"Running"})", deleted));
  EXPECT_FALSE(Decode(json("2025-12-31T23:59:01Z", deleted), ending)->own->ToCore().collected);
}

TEST(DecodePodTest, AnOrphanIsKeptWhileTheFinalizerHoldsIt) {
  const auto held = Decode(PodJson(kBound, R"({"phase":"Running"})",
                                   R"({"ownerReferences":[],"finalizers":["ringmaster.dev/job-tracking"]})"));
  ASSERT_TRUE(held && held->own);
  EXPECT_EQ(held->own->owner->job, "ml/gpt");
  EXPECT_EQ(held->own->owner->uid, "");
  EXPECT_EQ(held->own->pod.attempt, 3);
  const auto released = Decode(PodJson(kBound, R"({"phase":"Running"})", R"({"ownerReferences":[]})"), held);
  EXPECT_TRUE(released && !released->own);
  for (const char* name : {"gpt", "-1-2", "gpt-1", "1-2"}) {
    const std::string metadata = fmt::format(
        R"({{"name":"{}","ownerReferences":[],"finalizers":["ringmaster.dev/job-tracking"]}})", name);
    const auto pod = Decode(PodJson(kBound, R"({"phase":"Running"})", metadata.c_str()));
    EXPECT_TRUE(!pod || !pod->own) << name;
  }
}

TEST(DecodePodTest, ForeignClocksGiveNoFutureTimes) {
  const core::Pod pod = Core(PodJson(
      kBound,
      R"({"phase":"Running","conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T02:00:00Z"}],
          "containerStatuses":[{"name":"worker","state":{"running":{"startedAt":"2026-01-01T03:00:00Z"}}}]})",
      R"({"creationTimestamp":"2026-01-01T01:00:00Z"})"));
  EXPECT_EQ(pod.created, kNow);
  EXPECT_EQ(pod.placed, kNow);
  EXPECT_EQ(pod.started, kNow);
}

TEST(DecodePodTest, KeepsForeignPodsOnlyWhileTheyTakeCapacity) {
  const char* foreign = R"({"labels":{"app":"web"},"ownerReferences":[]})";
  const char* spec =
      R"({"nodeName":"node-1","containers":[{"resources":{"requests":{"cpu":"250m","memory":"1Gi"}}}]})";
  const auto bound = Decode(PodJson(spec, R"({"phase":"Running"})", foreign));
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->own, nullptr);
  ASSERT_TRUE(bound->requests);
  EXPECT_EQ(*bound->requests, (core::Resources{{"cpu", 250}, {"memory", 1 << 30}}));
  EXPECT_EQ(Decode(PodJson(spec, R"({"phase":"Succeeded"})", foreign)), nullptr);
  EXPECT_EQ(Decode(PodJson(R"({"containers":[]})", R"({"phase":"Pending"})", foreign)), nullptr);
  // Labels and a matching name do not make it a worker.
  EXPECT_EQ(Decode(PodJson(R"({})", R"({})", R"({"ownerReferences":[]})")), nullptr);
}

TEST(DecodePodTest, OwnerAndNameIdentifyAPod) {
  const auto edited = Decode(
      PodJson(R"({})", R"({})", R"({"labels":{"ringmaster.dev/attempt":"7","ringmaster.dev/rank":"x"}})"));
  ASSERT_TRUE(edited && edited->own);
  EXPECT_EQ(edited->own->owner->job, "ml/gpt");
  EXPECT_EQ(edited->own->pod.attempt, 3);
  EXPECT_EQ(edited->own->pod.rank, 1);
  for (const char* name : {"gpt-3", "gpt-3-x", "gpt-3-1-2", "gpt2-3-1", "gpt", "gpt--1", "gpt-03-1",
                           "gpt-3-01", "gpt-99999999999999999999-1"}) {
    const std::string metadata = fmt::format(R"({{"name":"{}"}})", name);
    const auto pod = Decode(PodJson(R"({})", R"({})", metadata.c_str()));
    EXPECT_TRUE(!pod || !pod->own) << name;
  }
}

TEST(DecodePodTest, AcceptsAnyShape) {
  const char* shapes[] = {"null", "[]", "7", "\"x\"", "{}", R"({"a":[{}]})"};
  const char* members[] = {"containers",        "initContainers", "schedulingGates", "tolerations",
                           "nodeSelector",      "affinity",       "nodeName",        "conditions",
                           "containerStatuses", "phase",          "reason",          "overhead",
                           "resources"};
  for (const char* member : members) {
    for (const char* shape : shapes) {
      Json spec = Json::object(), status = Json::object();
      spec[member] = Json::parse(shape);
      status[member] = Json::parse(shape);
      status[member == std::string("phase") ? "x" : "phase"] = "Failed";
      const std::string spec_text = spec.dump(), status_text = status.dump();
      EXPECT_NE(Decode(PodJson(spec_text.c_str(), status_text.c_str())), nullptr) << member << shape;
    }
  }
}

Json NodeJson(const char* ready, const char* since) {
  return {{"metadata", {{"name", "node-1"}, {"resourceVersion", "5"}, {"labels", {{"rack", "r1"}}}}},
          {"spec",
           {{"unschedulable", true},
            {"taints", Json::array({{{"key", "gpu"}, {"value", "x"}, {"effect", "NoSchedule"}}})}}},
          {"status",
           {{"allocatable", {{"cpu", "64"}, {"nvidia.com/gpu", "8"}, {"pods", "110"}}},
            {"conditions",
             Json::array({{{"type", "DiskPressure"}, {"status", "False"}},
                          {{"type", "Ready"}, {"status", ready}, {"lastTransitionTime", since}}})}}}};
}

TEST(DecodeNodeTest, FactsAndReachability) {
  const auto decode = [](const Json& json, const std::shared_ptr<const NodeRecord>& before, Time now) {
    return DecodeNode(json, ReadMeta(json), before, kClock, now);
  };
  const auto ready = decode(NodeJson("True", "2025-12-31T23:00:00Z"), nullptr, kNow);
  EXPECT_EQ(ready->facts.allocatable,
            (core::Resources{{"cpu", 64'000}, {"nvidia.com/gpu", 8}, {"pods", 110}}));
  EXPECT_EQ(ready->facts.labels.at("rack"), "r1");
  EXPECT_EQ(ready->facts.taints.at(0).effect, "NoSchedule");
  EXPECT_TRUE(ready->facts.unschedulable && ready->facts.ready);
  EXPECT_FALSE(ready->unreachable_since);
  const auto not_ready = decode(NodeJson("False", "2025-12-31T23:59:00Z"), ready, kNow);
  EXPECT_FALSE(not_ready->facts.ready);
  EXPECT_FALSE(not_ready->unreachable_since);
  const auto lost = decode(NodeJson("Unknown", "2025-12-31T23:59:00Z"), not_ready, kNow);
  EXPECT_EQ(lost->unreachable_since, At(-60));
  // A clock that is ahead: unreachable since we saw it, and unchanged when seen again.
  const Json ahead = NodeJson("Unknown", "2026-01-01T05:00:00Z");
  const auto seen = decode(ahead, ready, kNow);
  EXPECT_EQ(seen->unreachable_since, kNow);
  EXPECT_EQ(decode(ahead, seen, At(50))->unreachable_since, kNow);
}

TEST(DecodeNodeTest, AnotherBootIdIsARestart) {
  const auto decode = [](const char* boot, const std::shared_ptr<const NodeRecord>& before, Time now) {
    Json json = NodeJson("True", "2025-12-31T23:00:00Z");
    if (boot != nullptr) json["status"]["nodeInfo"] = {{"bootID", boot}};
    return DecodeNode(json, ReadMeta(json), before, kClock, now);
  };
  const auto first = decode("a", nullptr, kNow);
  EXPECT_FALSE(first->restarted);
  EXPECT_FALSE(decode("a", first, At(1))->restarted);
  const auto unknown = decode(nullptr, first, At(2));
  EXPECT_FALSE(unknown->restarted);
  const auto again = decode("b", unknown, At(3));
  EXPECT_EQ(again->restarted, At(3));
  EXPECT_EQ(decode("b", again, At(4))->restarted, At(3));
}

}  // namespace
}  // namespace ringmaster::kube
