// SPDX-License-Identifier: Apache-2.0

// Which part of a pod depends on which input; the golden files cannot show that.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/launch.h"
#include "api/load.h"
#include "operator/core/model.h"
#include "operator/wiring/config_map.h"
#include "operator/wiring/names.h"
#include "operator/wiring/network.h"
#include "operator/wiring/tree.h"
#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Json Pod(const api::TrainingJob& job, int32_t rank = 0, Context context = PlainContext()) {
  return PodOf(job, "uid-1", rank, context);
}

const Json& Worker(const Json& pod) { return pod["spec"]["containers"].at(0); }

std::string Env(const Json& pod, const std::string& name) {
  for (const Json& variable : Worker(pod)["env"]) {
    if (variable["name"] == name) return Text(variable, {"value"});
  }
  return "(not set)";
}

TEST(Pod, SetsTheAgentsIdentity) {
  Context context = PlainContext();
  context.attempt = 7;
  const Json pod = Pod(JobWith(), 1, context);
  EXPECT_EQ(pod["metadata"]["name"], "demo-7-1");
  EXPECT_EQ(pod["spec"]["hostname"], "demo-7-1");
  EXPECT_EQ(Env(pod, "RINGMASTER_JOB"), "research/demo");
  EXPECT_EQ(Env(pod, "RINGMASTER_POD"), "demo-7-1");
  EXPECT_EQ(Env(pod, "RINGMASTER_ATTEMPT"), "7");
  EXPECT_EQ(Env(pod, "RINGMASTER_COORDINATOR"), context.coordinator_address);
  EXPECT_EQ(pod["metadata"]["labels"][kRankLabel], "1");
}

TEST(Pod, OfAWorkerWithoutACommandServesTheLauncher) {
  const Case item = LoadCase("mpi-launcher");
  const Json worker = PodOf(item.job, "uid-1", 0, item.context);
  EXPECT_EQ(Worker(worker)["command"], Json::array({"/ringmaster/bin/ringmaster-agent", "run", "--",
                                                    "/ringmaster/bin/ringmaster-agent", "ranks"}));
  const Json launcher = PodOf(item.job, "uid-1", RanksOf(item.job, 2).back(), item.context);
  EXPECT_EQ(launcher["metadata"]["name"], "ring-1-launcher-0");
  EXPECT_EQ(Worker(launcher)["command"],
            Json::array({"/ringmaster/bin/ringmaster-agent", "run", "--", "mpirun", "ring"}));
  EXPECT_EQ(Env(launcher, "RINGMASTER_MPI_SLOTS"), "4");
}

TEST(Pod, OfALauncherNamesTheVariablesThatRanksInOtherPodsMustNotGet) {
  Case item = LoadCase("mpi-launcher");
  const int32_t rank = RanksOf(item.job, 2).back();
  EXPECT_EQ(Env(PodOf(item.job, "uid-1", rank, item.context), "RINGMASTER_MPI_POD_VARIABLES"), "(not set)");
  const Json from = {{"fieldRef", {{"fieldPath", "status.podIP"}}}};
  item.job.spec.roles[0].template_["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "POD_IP"}, {"valueFrom", from}},
       {{"name", "EPOCHS"}, {"value", "3"}},
       {{"name", "TOKEN"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "t"}}}}}},
       {{"name", "MEMORY"}, {"valueFrom", {{"resourceFieldRef", {{"resource", "limits.memory"}}}}}}});
  EXPECT_EQ(Env(PodOf(item.job, "uid-1", rank, item.context), "RINGMASTER_MPI_POD_VARIABLES"),
            "POD_IP,MEMORY");
}

TEST(Pod, OfARoleHasItsNameLabelsAndTemplate) {
  const Case item = LoadCase("tensorflow-roles");
  const std::vector<int32_t> ranks = RanksOf(item.job, 2);
  std::vector<std::string> names;
  for (const int32_t rank : ranks)
    names.push_back(PodOf(item.job, "uid-1", rank, item.context)["metadata"]["name"]);
  EXPECT_THAT(names, ElementsAre("strategy-1-0", "strategy-1-1", "strategy-1-chief-0", "strategy-1-ps-0",
                                 "strategy-1-ps-1"));
  const Json worker = PodOf(item.job, "uid-1", ranks[1], item.context);
  const Json ps = PodOf(item.job, "uid-1", ranks[4], item.context);
  EXPECT_EQ(worker["metadata"]["labels"][kRoleLabel], "worker");
  EXPECT_EQ(ps["metadata"]["labels"][kRoleLabel], "ps");
  EXPECT_EQ(ps["metadata"]["labels"][kRankLabel], "1");
  EXPECT_EQ(Env(worker, "RINGMASTER_ROLE"), "(not set)");
  EXPECT_EQ(Env(ps, "RINGMASTER_ROLE"), "ps");
  EXPECT_EQ(ps["spec"]["nodeSelector"]["kind"], "cpu");
  EXPECT_FALSE(worker["spec"].contains("nodeSelector"));
  const Json chief = PodOf(item.job, "uid-1", ranks[2], item.context);
  EXPECT_EQ(Worker(chief)["resources"], Worker(worker)["resources"]) << "the template of the workers";
}

TEST(Pod, AMasterIsTheFirstWorker) {
  api::TrainingJob job = LoadCase("pytorch").job;
  api::Role& master = job.spec.roles.emplace_back();
  master.name = api::kMaster;
  master.template_ = job.spec.workers.template_;
  master.template_["spec"]["containers"][0]["image"] = "registry.example/master:1";
  EXPECT_EQ(RanksOf(job, 2).size(), 2u);
  EXPECT_EQ(Worker(Pod(job, 0))["image"], "registry.example/master:1");
  EXPECT_EQ(Worker(Pod(job, 1))["image"], job.spec.workers.template_["spec"]["containers"][0]["image"]);
}

TEST(Pod, SubdomainIsTheService) {
  for (const Case& item : AllCases()) {
    if (api::RestartsInPlace(item.job.spec)) continue;
    const Json service = ObjectsOf(item.job, "uid-1", item.context)[0];
    EXPECT_EQ(service["kind"], "Service") << item.name;
    EXPECT_EQ(PodOf(item.job, "uid-1", 0, item.context)["spec"]["subdomain"], service["metadata"]["name"]);
  }
}

TEST(Pod, AJobWithAgentsHasAConfigMapAndNoService) {
  for (const Case& item : AllCases()) {
    if (!api::RestartsInPlace(item.job.spec)) continue;
    EXPECT_FALSE(PodOf(item.job, "uid-1", 0, item.context)["spec"].contains("subdomain")) << item.name;
    Context context = item.context;
    context.coordinator_ca_pem.clear();  // the marks of the gang need an object even then
    std::set<std::string> kinds;
    for (const Json& object : ObjectsOf(item.job, "uid-1", context)) kinds.insert(object["kind"]);
    EXPECT_FALSE(kinds.contains("Service")) << item.name;
    EXPECT_TRUE(kinds.contains("ConfigMap")) << item.name;
  }
}

TEST(Pod, WithoutACertificateAuthorityNothingRefersToOne) {
  Context context = PlainContext();
  context.coordinator_ca_pem.clear();
  const Json pod = Pod(JobWith(), 0, context);
  EXPECT_EQ(Env(pod, "RINGMASTER_CA_FILE"), "(not set)");
  EXPECT_EQ(pod.dump().find("ca.crt"), std::string::npos);
  EXPECT_FALSE(ObjectsOf(JobWith(), "uid-1", context)[0]["data"].contains("ca.crt"));
}

TEST(Pod, ThreadsFollowTheCpuLimit) {
  EXPECT_EQ(Env(Pod(JobWith()), "RINGMASTER_THREADS"), "(not set)");
  const Json pod = Pod(JobWith("",
                               "{replicas: 1, template: {spec: {containers: [{name: worker, resources: "
                               "{limits: {cpu: 4}}}]}}}"));
  EXPECT_EQ(Env(pod, "RINGMASTER_THREADS"), "");  // set from the limit
}

TEST(Pod, OtherFrameworksKeepTheirCommandAndUser) {
  const Json pod = Pod(LoadCase("pytorch").job);
  EXPECT_THAT(Worker(pod)["command"], ElementsAre("torchrun", "train.py"));
  EXPECT_FALSE(pod["spec"]["securityContext"].contains("runAsUser"));
  EXPECT_EQ(Env(pod, "RINGMASTER_STEP_SECONDS"), "(not set)");
}

TEST(Pod, AProgramWithTheLibraryIsATrainerOfTheAgent) {
  const Case item = LoadCase("pytorch-library");
  EXPECT_TRUE(UsesCoordinator(item.job));
  const Json pod = Pod(item.job);
  EXPECT_THAT(Worker(pod)["command"],
              ElementsAre("/ringmaster/bin/ringmaster-agent", "train", "--", "python", "train.py"));
  EXPECT_THAT(Worker(pod)["args"], ElementsAre("--seed", "1"));
  EXPECT_EQ(pod["spec"]["initContainers"].size(), 1u);
  EXPECT_EQ(Env(pod, "RINGMASTER_JOB_FILE"), "/etc/ringmaster/job.json");
  EXPECT_EQ(Env(pod, "RINGMASTER_STEP_SECONDS"), "600");
  EXPECT_EQ(Env(pod, "RINGMASTER_STOP_SECONDS"), "90");
  EXPECT_EQ(Env(pod, "RINGMASTER_SLOTS"), "4");
  EXPECT_EQ(Env(pod, "RINGMASTER_THREADS"), "");  // set from the limit
  for (const char* of_programs : {"RINGMASTER_FRAMEWORK", "RINGMASTER_ADDRESS", "RINGMASTER_SILENCE_SECONDS"})
    EXPECT_EQ(Env(pod, of_programs), "(not set)") << of_programs;
  EXPECT_FALSE(pod["spec"]["securityContext"].contains("runAsUser")) << "its image is the user's";
  // A checkpoint, then the code that follows the training.
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 60 + 90 + 5);
}

TEST(Pod, APortRangeForEachRank) {
  Context context = PlainContext();
  context.host_port_base = 20000;
  const api::TrainingJob job = JobWith("  network: {hostNetwork: true}\n");
  EXPECT_EQ(Env(Pod(job, 0, context), "UCX_TCP_PORT_RANGE"), "20000-20007");
  EXPECT_EQ(Env(Pod(job, 2, context), "UCX_TCP_PORT_RANGE"), "20016-20023");
  const Json pod = Pod(job, 2, context);
  for (const Json& port : Worker(pod)["ports"]) EXPECT_EQ(port["hostPort"], port["containerPort"]);
}

// Each slot takes its ports behind RINGMASTER_PORT_BASE.
TEST(Pod, APortRangeForEachSlotOfAProgram) {
  Context context = PlainContext();
  context.host_port_base = 20000;
  const api::TrainingJob job =
      api::LoadYaml(
          "apiVersion: ringmaster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: demo}\nspec:\n  "
          "framework: pytorch\n"
          "  network: {hostNetwork: true}\n  workers:\n    replicas: 2\n    slots: 3\n"
          "    template: {spec: {containers: [{name: worker, image: a, command: [python, a.py]}]}}\n")
          .job;
  std::set<int32_t> taken;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const Json pod = Pod(job, rank, context);
    const int32_t base = 20000 + rank * 24;
    EXPECT_EQ(Env(pod, "RINGMASTER_PORT_BASE"), std::to_string(base));
    EXPECT_EQ(Env(pod, "UCX_TCP_PORT_RANGE"), fmt::format("{}-{}", base, base + 23));
    for (const Json& port : Worker(pod)["ports"])
      EXPECT_TRUE(taken.insert(port["hostPort"].get<int32_t>()).second);
  }
  EXPECT_EQ(taken.size(), 48U);
}

TEST(Pod, ALauncherRequestsNoDevicesOfTheWorkers) {
  for (const char* rdma : {"{resource: rdma/ib, count: 2}", "{claimTemplate: nics}"}) {
    const api::TrainingJob job =
        api::LoadYaml(fmt::format("apiVersion: ringmaster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: "
                                  "demo}}\nspec:\n  framework: mpi\n"
                                  "  launch: {{mpi: openmpi}}\n  network: {{rdma: {}}}\n  workers:\n    "
                                  "replicas: 2\n    slots: gpu\n"
                                  "    template: {{spec: {{containers: [{{name: worker, image: a, resources: "
                                  "{{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}\n"
                                  "  roles: [{{name: launcher, template: {{spec: {{containers: [{{name: "
                                  "worker, image: a, command: [mpirun, a]}}]}}}}}}]\n",
                                  rdma))
            .job;
    const std::string worker = Pod(job).dump();
    const std::string launcher = Pod(job, core::RankInRole("launcher", 0)).dump();
    for (const char* part : {"rdma/ib", "resourceClaims", "IPC_LOCK", "nvidia.com/gpu"}) {
      EXPECT_EQ(launcher.find(part), std::string::npos) << part << launcher;
    }
    EXPECT_NE(worker.find("IPC_LOCK"), std::string::npos);
  }
}

TEST(Pod, EmptyTemplateAndNoneAreTheSame) {
  EXPECT_EQ(Pod(JobWith("", "{replicas: 2, template: {}}")), Pod(JobWith()));
  EXPECT_EQ(Pod(JobWith("", "{replicas: 2, template: {metadata: null, spec: null}}")), Pod(JobWith()));
  EXPECT_EQ(Pod(JobWith("", "{replicas: 2, template: {spec: {containers: null}}}")), Pod(JobWith()));
}

TEST(Pod, SidecarsWithoutAWorkerFollowTheDefaultContainer) {
  const Json pod = Pod(JobWith("", "{replicas: 1, template: {spec: {containers: [{name: a}, {name: b}]}}}"));
  std::vector<std::string> names;
  for (const Json& container : pod["spec"]["containers"]) names.push_back(container["name"]);
  EXPECT_THAT(names, ElementsAre("worker", "a", "b"));
}

TEST(Network, HasOneAttachmentPerDevice) {
  const auto attachments = [](const std::string& network) {
    return Text(Pod(JobWith(fmt::format("  network: {}\n", network))),
                {"metadata", "annotations", kNetworksAnnotation});
  };
  EXPECT_EQ(attachments("{networks: [a, b]}"), "a,b");
  EXPECT_EQ(attachments("{networks: [a], rdma: {resource: x.y/vf, count: 3}}"), "a,a,a");
  EXPECT_EQ(attachments("{networks: [a, b], rdma: {resource: x.y/vf, count: 4}}"), "a,b,a,b");
  EXPECT_EQ(attachments("{networks: [a, b], rdma: {resource: x.y/vf, count: 3}}"), "a,b");
  EXPECT_EQ(attachments("{networks: [a, b], rdma: {resource: x.y/ib}}"), "a,b");
}

TEST(Network, NetworkVariablesAreTheFirstSource) {
  const Json pod = Pod(JobWith("  network: {rdma: {resource: rdma/ib}}\n",
                               "{replicas: 1, template: {spec: {containers: [{name: worker, envFrom: "
                               "[{secretRef: {name: theirs}}]}]}}}"));
  const Json& sources = Worker(pod)["envFrom"];
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0]["configMapRef"]["name"], "demo-network");
  EXPECT_EQ(sources[1]["secretRef"]["name"], "theirs");
}

TEST(Network, NoVariablesWithoutRdma) {
  EXPECT_THAT(NetworkVariables(JobWith()), IsEmpty());
  EXPECT_FALSE(Worker(Pod(JobWith())).contains("envFrom"));
}

TEST(Network, TcpIsForbiddenOnlyWhenRdmaIsRequired) {
  const auto variables = [](const std::string& network) {
    return NetworkVariables(JobWith(fmt::format("  network: {}\n", network)));
  };
  EXPECT_EQ(Text(variables("{rdma: {resource: rdma/ib}}"), {"UCX_TLS"}), "^tcp");
  EXPECT_EQ(Text(variables("{rdma: {resource: rdma/ib}}"), {"NCCL_NET"}), "IB");
  EXPECT_EQ(Text(variables("{rdma: {claimTemplate: c}}"), {"NCCL_NET"}), "");
  EXPECT_EQ(Text(variables("{rdma: {resource: rdma/ib, required: false}}"), {"UCX_TLS"}), "");
  EXPECT_EQ(Text(variables("{rdma: {resource: rdma/ib}, fallback: allow}"), {"UCX_TLS"}), "");
}

TEST(Config, TheTemplateIsNotInTheConfig) {
  const api::TrainingJob job = JobWith("",
                                       "{replicas: 1, template: {spec: {containers: [{name: worker, env: "
                                       "[{name: KEY, value: hunter2}]}]}}}");
  for (const Json& object : ObjectsOf(job, "uid-1", PlainContext()))
    EXPECT_EQ(object.dump().find("hunter2"), std::string::npos) << object["kind"];
}

TEST(Config, AWorkerCanReadIt) {
  for (const Case& item : AllCases()) {
    if (!api::RunsTrainers(item.job.spec)) continue;
    const Json map = ObjectsOf(item.job, "uid-1", item.context)[0];
    const api::Loaded loaded = api::LoadYaml(map["data"]["job.json"].get<std::string>());
    EXPECT_THAT(loaded.problems, IsEmpty()) << item.name << ": " << loaded.problems.front().ToString();
    EXPECT_EQ(loaded.job.metadata.name, item.job.metadata.name);
    EXPECT_EQ(loaded.job.spec.training, item.job.spec.training);
    EXPECT_EQ(loaded.job.spec.network, item.job.spec.network);
  }
}

TEST(Config, AProgramWithTheLibraryReadsTheJobWithoutTheTemplate) {
  const Case item = LoadCase("pytorch-library");
  const Json map = ObjectsOf(item.job, "uid-1", item.context)[0];
  EXPECT_EQ(map.dump().find("of-the-user"), std::string::npos);
  const api::Loaded loaded = api::LoadYaml(map["data"]["job.json"].get<std::string>());
  EXPECT_EQ(loaded.job.spec.checkpoint.path, "/checkpoints/research/pytorch-library");
  EXPECT_EQ(loaded.job.spec.launch.kind, "library");
}

// A program gets no job from us, and its agent only what it needs to trust the coordinator.
TEST(Config, AProgramsAgentGetsTheAuthority) {
  Case item = LoadCase("pytorch-plain");
  const Json map = ObjectsOf(item.job, "uid-1", item.context)[0];
  EXPECT_EQ(map["kind"], "ConfigMap");
  EXPECT_EQ(map["data"], (Json{{"ca.crt", item.context.coordinator_ca_pem}}));
  item.context.coordinator_ca_pem.clear();
  EXPECT_EQ(ObjectsOf(item.job, "uid-1", item.context)[0]["data"], Json::object());
}

// They get no token either.
TEST(Config, JobsWithoutAgentsHaveNoConfig) {
  const Case item = LoadCase("pytorch");
  EXPECT_FALSE(UsesCoordinator(item.job));
  for (const Json& object : ObjectsOf(item.job, "uid-1", item.context))
    EXPECT_NE(object["kind"], "ConfigMap");
  const std::string pod = PodOf(item.job, "uid-1", 0, item.context).dump();
  for (const char* what : {"serviceAccountToken", "RINGMASTER_COORDINATOR", kConfigFolder})
    EXPECT_EQ(pod.find(what), std::string::npos) << what;
}

TEST(Config, FieldsForTheOperatorDoNotChangeTheConfig) {
  const auto config = [](const std::string& spec) {
    return ObjectsOf(JobWith(spec), "uid-1", PlainContext())[0];
  };
  EXPECT_EQ(config("  suspend: true\n  restart: {maxRestarts: 3}\n  lifecycle: {cleanPods: All}\n"),
            config(""));
}

TEST(Names, FitForTheLongestJob) {
  const std::string job(48, '1');
  EXPECT_LE(core::PodName(job, 999'999'999, 4095).size(), 63u);
  EXPECT_LE(ServiceName(job).size(), 63u);
  EXPECT_LE(GroupName(job, 999'999'999).size(), 63u);
}

TEST(Names, AServiceBeginsWithALetter) { EXPECT_EQ(ServiceName("1a"), "workers-1a"); }

TEST(Names, AQueueNameThatIsTooLongIsNoLabel) {
  const std::string job = "  scheduling: {queue: " + std::string(64, 'q') + "}\n";
  EXPECT_FALSE(Pod(JobWith(job))["metadata"]["labels"].contains(kQueueLabel));
}

TEST(Gang, OneGroupPerAttempt) {
  Context context = PlainContext();
  context.size = 3;
  for (const Gang gang : {Gang::kNative, Gang::kVolcano, Gang::kCoscheduling}) {
    context.gang = gang;
    context.attempt = 1;
    const Json first = ObjectsOf(JobWith(), "uid-1", context).back();
    context.attempt = 2;
    const Json second = ObjectsOf(JobWith(), "uid-1", context).back();
    EXPECT_EQ(first["kind"], "PodGroup");
    EXPECT_NE(first["metadata"]["name"], second["metadata"]["name"]);
    EXPECT_NE(Pod(JobWith(), 0, context).dump().find(second["metadata"]["name"].get<std::string>()),
              std::string::npos);
  }
}

// A server drops or refuses fields that its version does not have.
TEST(Gang, EachNativeVersionHasItsObjectAndItsFieldOfThePods) {
  Context context = PlainContext();
  context.gang = Gang::kNative;
  context.size = 3;
  const api::TrainingJob job = JobWith("  scheduling: {priorityClassName: high}\n");
  for (const NativeApi& api : kNativeApis) {
    context.native = &api;
    const Json group = ObjectsOf(job, "uid-1", context).back();
    const std::string name = group["metadata"]["name"];
    const Json pod = Pod(job, 0, context)["spec"];
    EXPECT_EQ(group["apiVersion"], std::string("scheduling.k8s.io/") + api.version);
    const Json gang = {{"gang", {{"minCount", 3}}}};
    if (std::string(api.version) == "v1alpha1") {
      EXPECT_EQ(group["kind"], "Workload");
      EXPECT_EQ(group["spec"]["podGroups"], Json::array({{{"name", "pods"}, {"policy", gang}}}));
      EXPECT_EQ(group["spec"]["controllerRef"]["apiGroup"], "ringmaster.dev");
      EXPECT_EQ(pod["workloadRef"], (Json{{"name", name}, {"podGroup", "pods"}}));
      EXPECT_FALSE(pod.contains("schedulingGroup"));
    } else {
      EXPECT_EQ(group["kind"], "PodGroup");
      EXPECT_EQ(group["spec"], (Json{{"priorityClassName", "high"}, {"schedulingPolicy", gang}}));
      EXPECT_EQ(pod["schedulingGroup"], (Json{{"podGroupName", name}}));
      EXPECT_FALSE(pod.contains("workloadRef"));
    }
  }
}

TEST(Gang, HasThePriorityOfItsWorkers) {
  Context context = PlainContext();
  api::TrainingJob job = JobWith();
  for (const std::string own : {"", "batch"}) {
    if (!own.empty()) job.spec.workers.template_["spec"]["priorityClassName"] = own;
    for (const std::string given : {"", "high"}) {
      job.spec.scheduling.priorityClassName = given;
      const std::string priority = api::PriorityClassOf(job.spec, job.spec.workers.template_);
      EXPECT_EQ(priority, own.empty() ? given : own) << "the template goes before the job's field";
      EXPECT_EQ(Pod(job, 0, context)["spec"].value("priorityClassName", ""), priority);
      for (const Gang gang : {Gang::kNative, Gang::kVolcano}) {
        context.gang = gang;
        EXPECT_EQ(ObjectsOf(job, "uid-1", context).back()["spec"].value("priorityClassName", ""), priority);
      }
    }
  }
}

TEST(Gang, OnlyTheGateAddsASchedulingGate) {
  Context context = PlainContext();
  for (const Gang gang : {Gang::kNone, Gang::kNative, Gang::kVolcano, Gang::kCoscheduling}) {
    context.gang = gang;
    EXPECT_FALSE(Pod(JobWith(), 0, context)["spec"].contains("schedulingGates"));
  }
  context.gang = Gang::kGate;
  EXPECT_EQ(Pod(JobWith(), 0, context)["spec"]["schedulingGates"][0]["name"], kGangGate);
}

TEST(Placement, EveryTermExcludesTheNodes) {
  const Case item = LoadCase("placement");
  const Json pod = Pod(item.job, 0, item.context);
  const Json& terms = pod["spec"]["affinity"]["nodeAffinity"]
                         ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 2u);
  // By the node's name: the label kubernetes.io/hostname may differ. Each requirement has one value.
  const Json off = {{{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {"node-3"}}},
                    {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {"node-7"}}}};
  for (const Json& term : terms) EXPECT_EQ(term["matchFields"], off);
}

TEST(Placement, ATermThatMatchesNoNodeStaysLikeThat) {
  api::TrainingJob job = JobWith();
  job.spec.workers.template_ = {{"spec",
                                 {{"affinity",
                                   {{"nodeAffinity",
                                     {{"requiredDuringSchedulingIgnoredDuringExecution",
                                       {{"nodeSelectorTerms", Json::array({Json::object()})}}}}}}}}}};
  Context context = PlainContext();
  context.excluded_nodes = {"node-1"};
  EXPECT_EQ(Pod(job, 0, context)["spec"]["affinity"]["nodeAffinity"]
                                ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
            Json::array({Json::object()}));
}

TEST(Gang, VolcanoAdmitsAGroupByItsResources) {
  api::TrainingJob job = JobWith();
  job.spec.workers.template_ = Json::parse(
      R"({"spec":{"containers":[{"name":"worker","resources":{"limits":{"cpu":"1500m","nvidia.com/gpu":8}}}]}})");
  Context context = PlainContext();
  context.gang = Gang::kVolcano;
  context.size = 3;
  const Json resources = ObjectsOf(job, "uid-1", context).back()["spec"]["minResources"];
  EXPECT_EQ(resources["cpu"], "4500m");
  EXPECT_EQ(resources["nvidia.com/gpu"], "24");
}

TEST(Gang, VolcanoLooksForADomainWithRoom) {
  Context context = PlainContext();
  context.gang = Gang::kVolcano;
  const auto topology = [&](const char* text) {
    api::TrainingJob job = JobWith(fmt::format("  scheduling: {{topology: {}}}\n", text));
    return ObjectsOf(job, "uid-1", context).back()["spec"].value("networkTopology", Json());
  };
  EXPECT_EQ(topology("{}"), Json());
  EXPECT_EQ(topology("{required: rack}"), (Json{{"mode", "hard"}, {"highestTierName", "rack"}}));
  EXPECT_EQ(topology("{preferred: zone}"), (Json{{"mode", "soft"}, {"highestTierName", "zone"}}));
  EXPECT_EQ(topology("{required: zone, preferred: rack}")["highestTierName"], "zone");
}

TEST(Gang, PodsNameTheSchedulerThatKnowsTheirGroup) {
  Context context = PlainContext();
  context.gang = Gang::kCoscheduling;
  EXPECT_EQ(Pod(JobWith(), 0, context)["spec"]["schedulerName"], "scheduler-plugins-scheduler");
  context.schedulers.coscheduling = "default-scheduler";
  EXPECT_EQ(Pod(JobWith(), 0, context)["spec"]["schedulerName"], "default-scheduler");
  context.gang = Gang::kVolcano;
  EXPECT_EQ(Pod(JobWith(), 0, context)["spec"]["schedulerName"], "volcano");
  api::TrainingJob job = JobWith();
  job.spec.workers.template_ = {{"spec", {{"schedulerName", "mine"}}}};
  EXPECT_EQ(Pod(job, 0, context)["spec"]["schedulerName"], "mine");
}

}  // namespace
}  // namespace ringmaster::wiring
