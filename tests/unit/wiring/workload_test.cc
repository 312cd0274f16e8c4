// SPDX-License-Identifier: Apache-2.0

// The Workload of a job, and what an admission adds to its pods.
#include "operator/wiring/workload.h"

#include <gtest/gtest.h>

#include "api/load.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

api::TrainingJob Load(const char* text) {
  api::Loaded loaded = api::LoadYaml(text, {});
  EXPECT_TRUE(loaded.problems.empty()) << (loaded.problems.empty() ? "" : loaded.problems[0].ToString());
  return loaded.job;
}

constexpr const char* kJob = R"(
apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {name: gpt, namespace: team}
spec:
  framework: pytorch
  launch: {kind: none}
  workers:
    replicas: 4
    template:
      spec:
        nodeSelector: {disk: fast}
        containers:
          - name: worker
            image: train:1
            env: [{name: SECRET, value: x}]
            resources: {limits: {nvidia.com/gpu: 8}}
)";

WorkloadInputs Inputs() {
  WorkloadInputs inputs;
  inputs.queue = "q";
  inputs.pod_sets = {{core::kWorkerSet, 4, 2}};
  inputs.priority = 7;
  return inputs;
}

TEST(Workload, HasWhatKueueCounts) {
  const Json workload = WorkloadOf(Load(kJob), "job-uid", Inputs());
  EXPECT_EQ(workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"], "job-uid");
  EXPECT_EQ(workload["metadata"]["finalizers"], Json::array({kWorkloadFinalizer}));
  const Json& spec = workload["spec"];
  EXPECT_EQ(spec["queueName"], "q");
  EXPECT_EQ(spec["priority"], 7);
  EXPECT_FALSE(spec.contains("priorityClassRef"));
  const Json& set = spec["podSets"][0];
  EXPECT_EQ(set["name"], "worker");
  EXPECT_EQ(set["count"], 4);
  EXPECT_EQ(set["minCount"], 2);
  const Json& pod = set["template"]["spec"];
  EXPECT_EQ(pod["nodeSelector"]["disk"], "fast");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 8);
  EXPECT_FALSE(pod["containers"][0].contains("env")) << "nothing that may be secret or change";
}

// A PodTemplate of such a container must be valid: ProvisioningRequests use these.
TEST(Workload, EveryContainerHasAnImage) {
  for (const char* name : {"plain", "pytorch", "pytorch-library"}) {
    const api::TrainingJob job = LoadCase(name).job;
    const Json workload = WorkloadOf(job, "job-uid", Inputs());
    const Json& pod = workload["spec"]["podSets"][0]["template"]["spec"];
    for (const char* list : {"containers", "initContainers"})
      for (const Json& container : pod.value(list, Json::array()))
        EXPECT_NE(container.value("image", ""), "") << name << ": " << container["name"];
  }
}

TEST(Workload, ItsNameFitsALabel) {
  const std::string longest(48, 'j');
  EXPECT_LE(WorkloadName(longest, "uid").size(), 63U);
  EXPECT_NE(WorkloadName("gpt", "uid-1"), WorkloadName("gpt", "uid-2"));
}

TEST(Workload, ASliceNamesTheOneThatItReplaces) {
  WorkloadInputs inputs = Inputs();
  EXPECT_FALSE(
      WorkloadOf(Load(kJob), "job-uid", inputs)["metadata"]["annotations"].contains(kElasticAnnotation));
  inputs.slice = true;
  const Json first = WorkloadOf(Load(kJob), "job-uid", inputs)["metadata"];
  EXPECT_EQ(first["annotations"][kElasticAnnotation], "true");
  EXPECT_EQ(first["annotations"][kChainAnnotation], first["name"]);
  inputs.replaces = inputs.chain = first["name"].get<std::string>();
  const Json second = WorkloadOf(Load(kJob), "job-uid", inputs)["metadata"];
  EXPECT_NE(second["name"], first["name"]);
  EXPECT_EQ(second["annotations"][kReplacesAnnotation], "team/" + inputs.replaces);
  EXPECT_EQ(second["annotations"][kChainAnnotation], first["name"]);
}

TEST(Workload, AReadyMadeOneIsAdopted) {
  const Json ready = {{"metadata", {{"name", "w"}, {"finalizers", {"other"}}}}};
  const Json metadata = AdoptedMetadata(Load(kJob), "job-uid", ready);
  EXPECT_EQ(metadata["labels"]["ringmaster.dev/job"], "gpt");
  EXPECT_EQ(metadata["labels"]["kueue.x-k8s.io/job-uid"], "job-uid");
  EXPECT_EQ(metadata["finalizers"], (Json{"other", kWorkloadFinalizer}));
  EXPECT_EQ(metadata["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_FALSE(metadata.contains("name"));
}

TEST(Workload, TheHashIgnoresQueueAndCounts) {
  const api::TrainingJob job = Load(kJob);
  const std::string before = RenderedText(WorkloadOf(job, "job-uid", Inputs()));
  WorkloadInputs other = Inputs();
  other.queue = "r";
  other.pod_sets = {{core::kWorkerSet, 9}};
  EXPECT_EQ(RenderedText(WorkloadOf(job, "job-uid", other)), before);
  other.priority = 8;
  EXPECT_NE(RenderedText(WorkloadOf(job, "job-uid", other)), before);
}

// Labels of nodes come from an admission, so a Workload with others is not outdated.
TEST(Workload, EveryPodSetSelectsTheLabelsOfTheNodes) {
  const api::TrainingJob job = Load(kJob);
  WorkloadInputs inputs = Inputs();
  const Json before = WorkloadOf(job, "job-uid", inputs);
  inputs.node_labels = {{"kind", "spot"}};
  const Json workload = WorkloadOf(job, "job-uid", inputs);
  EXPECT_EQ(workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"],
            (Json{{"disk", "fast"}, {"kind", "spot"}}));
  EXPECT_EQ(workload["metadata"]["annotations"][kRenderedAnnotation],
            before["metadata"]["annotations"][kRenderedAnnotation]);
}

// Labels and annotations of the job, as Kueue's own kinds have them.
TEST(Workload, HasTheMaximumTimeAndTheGatesOfItsJob) {
  const api::TrainingJob job = Load(kJob);
  const Json plain = WorkloadOf(job, "job-uid", Inputs());
  EXPECT_FALSE(plain["spec"].contains("maximumExecutionTimeSeconds"));
  WorkloadInputs inputs = Inputs();
  inputs.maximum_seconds = 60;
  Json workload = WorkloadOf(job, "job-uid", inputs);
  EXPECT_EQ(workload["spec"]["maximumExecutionTimeSeconds"], 60);
  EXPECT_NE(RenderedText(workload), RenderedText(plain)) << "a Workload that waits is rendered again";
  for (const char* name : {"kueue.x-k8s.io/admission-gated-by", "provreq.kueue.x-k8s.io/zone"}) {
    EXPECT_TRUE(IsPassedOn(name));
    inputs = Inputs();
    inputs.annotations[name] = "a";
    workload = WorkloadOf(job, "job-uid", inputs);
    const Json& annotations = workload["metadata"]["annotations"];
    EXPECT_EQ(annotations[name], "a");
    EXPECT_EQ(annotations[kRenderedAnnotation], RenderedText(workload));
    EXPECT_NE(RenderedText(workload), RenderedText(plain));
    inputs.annotations[name] = "b";
    EXPECT_NE(RenderedText(WorkloadOf(job, "job-uid", inputs)), RenderedText(workload));
  }
  EXPECT_FALSE(IsPassedOn(kQueueNameLabel) || IsPassedOn("other"));
}

TEST(Workload, AMaximumTimeIsAPositiveNumberOfSeconds) {
  EXPECT_EQ(MaximumSeconds("1"), 1);
  EXPECT_EQ(MaximumSeconds("2147483647"), 2147483647);
  for (const char* bad : {"", "0", "-1", "2147483648", "60s", "1.5", " 1", "soon"})
    EXPECT_EQ(MaximumSeconds(bad), std::nullopt) << bad;
}

TEST(Workload, AsksForTheTopologyOfTheAnnotations) {
  api::TrainingJob job = Load(kJob);
  const std::string before = RenderedText(WorkloadOf(job, "job-uid", Inputs()));
  EXPECT_FALSE(WorkloadOf(job, "job-uid", Inputs())["spec"]["podSets"][0].contains("topologyRequest"));
  Json& annotations = job.spec.workers.template_["metadata"]["annotations"];
  annotations = {{"kueue.x-k8s.io/podset-required-topology", "rack"}, {"other", "x"}};
  const Json workload = WorkloadOf(job, "job-uid", Inputs());
  EXPECT_EQ(workload["spec"]["podSets"][0]["topologyRequest"],
            (Json{{"required", "rack"}, {"podIndexLabel", "ringmaster.dev/rank"}}));
  EXPECT_NE(RenderedText(workload), before) << "a Workload that waits is rendered again";
  annotations = {{"kueue.x-k8s.io/podset-unconstrained-topology", "true"},
                 {"kueue.x-k8s.io/podset-slice-required-topology", "rack"},
                 {"kueue.x-k8s.io/podset-slice-size", "2"}};
  EXPECT_EQ(WorkloadOf(job, "job-uid", Inputs())["spec"]["podSets"][0]["topologyRequest"],
            (Json{{"unconstrained", true},
                  {"podSetSliceRequiredTopology", "rack"},
                  {"podSetSliceSize", 2},
                  {"podIndexLabel", "ringmaster.dev/rank"}}));
  annotations = {{"kueue.x-k8s.io/podset-slice-size", "two"}};
  EXPECT_EQ(WorkloadOf(job, "job-uid", Inputs())["spec"]["podSets"][0]["topologyRequest"]["podSetSliceSize"],
            "two")
      << "the API server refuses it";
}

// The gate of the operator and that of Kueue are two: each is removed by its owner.
TEST(Workload, APodWithATopologyIsGated) {
  constexpr const char* kUnconstrained = "kueue.x-k8s.io/podset-unconstrained-topology";
  Context context;
  context.gang = Gang::kGate;
  context.admission.scheduling_gates = {kTopologyGate};
  api::TrainingJob job = Load(kJob);
  Json pod = PodOf(job, "job-uid", 0, context);
  EXPECT_EQ(pod["spec"]["schedulingGates"], (Json{{{"name", kGangGate}}, {{"name", kTopologyGate}}}));
  EXPECT_EQ(pod["metadata"]["annotations"][kUnconstrained], "true")
      << "a queue may have only flavours with a topology";
  job.spec.workers.template_["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] = "rack";
  pod = PodOf(job, "job-uid", 0, context);
  EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"], "rack");
  EXPECT_FALSE(pod["metadata"]["annotations"].contains(kUnconstrained));
}

TEST(Workload, AnAdmissionReachesThePod) {
  Context context;
  context.admission.node_selector = {{"kind", "spot"}};
  context.admission.tolerations = {{{"key", "spot"}, {"operator", "Exists"}}};
  context.admission.labels = {{"kueue.x-k8s.io/podset", "worker"}};
  context.admission.annotations = {{"kueue.x-k8s.io/workload", "gpt-abcde"}};
  const Json pod = PodOf(Load(kJob), "job-uid", 0, context);
  EXPECT_EQ(pod["spec"]["nodeSelector"], (Json{{"disk", "fast"}, {"kind", "spot"}}));
  EXPECT_EQ(pod["spec"]["tolerations"].back()["key"], "spot");
  EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "worker");
  EXPECT_EQ(pod["metadata"]["labels"]["ringmaster.dev/job"], "gpt");
  EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "gpt-abcde");
}

}  // namespace
}  // namespace ringmaster::wiring
