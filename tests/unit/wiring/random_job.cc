// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/wiring/random_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace ringmaster::wiring {
namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  bool Chance(double probability) { return random_.Chance(probability); }
  int Below(int bound) { return static_cast<int>(random_.Below(static_cast<uint64_t>(bound))); }

  template <class T>
  T OneOf(const std::vector<T>& values) {
    return values[random_.Below(values.size())];
  }

  std::string Name(int longest) {
    static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
    std::string name;
    for (int i = Below(longest) + 1; i > 0; --i) name += kLetters[random_.Below(kLetters.size())];
    if (name.front() == '-') name.front() = 'a';
    if (name.back() == '-') name.back() = 'z';
    return name;
  }

  Json Env() {
    static const std::vector<std::string> kNames = {"A",
                                                    "NCCL_NET",
                                                    "NCCL_SOCKET_IFNAME",
                                                    "UCX_TLS",
                                                    "UCX_TCP_PORT_RANGE",
                                                    "RINGMASTER_JOB",
                                                    "RINGMASTER_THREADS",
                                                    "RINGMASTER_NODE",
                                                    "Z"};
    Json list = Json::array();
    for (const std::string& name : kNames) {
      if (Chance(0.3))
        list.push_back({{"name", name}, {"value", fmt::format("{}-{}", kSecretText, Below(100))}});
    }
    return list;
  }

  Json Resources() {
    Json limits = Json::object();
    for (const char* name : {"cpu", "memory", "nvidia.com/gpu", "rdma/ib", "x.example/vf"}) {
      if (Chance(0.4)) limits[name] = std::to_string(Below(64) + 1);
    }
    return {{"limits", limits}};
  }

  Json Container(const std::string& name) {
    Json container = {{"name", name}};
    if (Chance(0.5)) container["image"] = "registry.example/" + Name(10);
    if (Chance(0.3)) container["command"] = Json::array({"run", Name(5)});
    if (Chance(0.6)) container["env"] = Env();
    if (Chance(0.3)) container["envFrom"] = Json::array({{{"configMapRef", {{"name", Name(10)}}}}});
    if (Chance(0.6)) container["resources"] = Resources();
    if (Chance(0.3)) container["ports"] = Json::array({{{"containerPort", 9000 + Below(3)}}});
    if (Chance(0.3)) container["volumeMounts"] = Json::array({{{"name", "v0"}, {"mountPath", Path()}}});
    if (Chance(0.3)) container["securityContext"] = SecurityContext();
    return container;
  }

  std::string Path() { return OneOf<std::string>({"/dev/shm", "/data", "/ckpt", "/etc/ringmaster"}); }

  Json SecurityContext() {
    Json context = Json::object();
    if (Chance(0.3)) context["runAsUser"] = Below(2) * 1000;
    if (Chance(0.2)) context["privileged"] = Chance(0.5);
    if (Chance(0.3)) context["capabilities"] = {{"add", {OneOf<std::string>({"SYS_PTRACE", "SYS_ADMIN"})}}};
    return context;
  }

  Json Template() {
    Json spec = Json::object();
    const int containers = Below(4);
    for (int i = 0; i < containers; ++i)
      spec["containers"].push_back(Container(i == 0 && Chance(0.7) ? "worker" : fmt::format("c{}", i)));
    if (Chance(0.2)) spec["initContainers"] = Json::array({Container("init")});
    if (Chance(0.5)) {
      spec["volumes"] = Json::array();
      for (int i = 0; i <= Below(3); ++i)
        spec["volumes"].push_back({{"name", fmt::format("v{}", i)}, {"emptyDir", Json::object()}});
    }
    if (Chance(0.4))
      spec["tolerations"] =
          Json::array({{{"key", OneOf<std::string>({"nvidia.com/gpu", "x"})}, {"operator", "Exists"}}});
    if (Chance(0.3)) spec["nodeSelector"] = {{"pool", Name(8)}};
    if (Chance(0.3)) {
      Json terms = Json::array();
      for (int i = 0; i <= Below(3); ++i)
        terms.push_back({{"matchExpressions", {{{"key", fmt::format("k{}", i)}, {"operator", "Exists"}}}}});
      spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
          {"nodeSelectorTerms", terms}};
    }
    if (Chance(0.2)) spec["securityContext"] = SecurityContext();
    if (Chance(0.2)) spec["restartPolicy"] = "OnFailure";
    Json value = {{"spec", spec}};
    if (Chance(0.3))
      value["metadata"] = {{"labels", {{"team", Name(10)}}}, {"annotations", {{"note", Name(10)}}}};
    return value;
  }

  Json Tree(int depth) {
    static const std::vector<std::string> kNames = {"metadata",
                                                    "labels",
                                                    "annotations",
                                                    "spec",
                                                    "containers",
                                                    "initContainers",
                                                    "env",
                                                    "envFrom",
                                                    "volumes",
                                                    "name",
                                                    "resources",
                                                    "limits",
                                                    "claims",
                                                    "affinity",
                                                    "nodeAffinity",
                                                    "ports",
                                                    "tolerations",
                                                    "value",
                                                    "securityContext",
                                                    "capabilities",
                                                    "add",
                                                    "volumeMounts",
                                                    "mountPath",
                                                    "requiredDuringSchedulingIgnoredDuringExecution",
                                                    "nodeSelectorTerms",
                                                    "podAffinity",
                                                    "schedulingGates",
                                                    "resourceClaims",
                                                    "runAsUser",
                                                    "containerPort",
                                                    "key"};
    switch (depth > 6 ? Below(5) : Below(9)) {
      case 0:
        return nullptr;
      case 1:
        return Below(100);
      case 2:
        return Chance(0.5);
      case 3:
      case 4:
        return Chance(0.3) ? "worker" : Name(8);
      case 5: {
        Json list = Json::array();
        for (int i = Below(4); i > 0; --i) list.push_back(Tree(depth + 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (int i = Below(5); i > 0; --i) object[OneOf(kNames)] = Tree(depth + 1);
        return object;
      }
    }
  }

 private:
  SplitMix64 random_;
};

}  // namespace

api::TrainingJob RandomJob(uint64_t seed) {
  Maker maker(seed);
  api::TrainingJob job;
  job.metadata.name = maker.Name(48);
  job.metadata.namespace_ = maker.Name(63);
  job.spec.framework = maker.Chance(0.7) ? "native" : "pytorch";
  if (job.spec.framework == "native") job.spec.training.emplace();
  job.spec.launch.kind = maker.Chance(0.7) ? "ranks" : maker.Chance(0.5) ? "library" : "none";
  job.spec.restart.stopSeconds = maker.Below(300);
  job.spec.workers.replicas = maker.Below(4096) + 1;
  job.spec.workers.slots = maker.OneOf<std::string>({"1", "gpu", "4"});
  if (maker.Chance(0.8)) job.spec.workers.template_ = maker.Template();
  if (maker.Chance(0.4)) job.spec.checkpoint.path = "/ckpt";
  if (maker.Chance(0.4)) job.spec.checkpoint.volumeClaim = maker.Name(20);
  api::Network& network = job.spec.network;
  if (maker.Chance(0.5)) {
    network.rdma.emplace();
    (maker.Chance(0.7) ? network.rdma->resource : network.rdma->claimTemplate) = "rdma/ib";
    network.rdma->count = maker.Below(8) + 1;
    network.rdma->required = maker.Chance(0.5);
  }
  if (maker.Chance(0.3)) network.networks = {"fabric/a", "fabric/b"};
  network.hostNetwork = maker.Chance(0.2);
  if (maker.Chance(0.3)) job.spec.scheduling.queue = maker.Name(253);
  if (maker.Chance(0.3)) job.spec.scheduling.topology.required = "rack";
  if (maker.Chance(0.3)) job.spec.scheduling.topology.preferred = "zone";
  return job;
}

Context RandomContext(uint64_t seed, const api::TrainingJob& job) {
  Maker maker(KeyedRandom(seed, 1));
  Context context;
  context.worker_image = "registry.example/worker:1";
  context.coordinator_address = "coordinator:7470";
  if (maker.Chance(0.8)) context.coordinator_ca_pem = "authority\n";
  context.gang = static_cast<Gang>(maker.Below(5));
  context.native = &kNativeApis[seed % std::size(kNativeApis)];
  context.attempt = maker.Below(999'999'999) + 1;
  context.size = job.spec.workers.replicas;
  for (int i = maker.Below(4); i > 0; --i) context.excluded_nodes.push_back(fmt::format("node-{}", i));
  std::sort(context.excluded_nodes.begin(), context.excluded_nodes.end());
  if (maker.Chance(0.5)) context.host_port_base = 20000;
  return context;
}

Json RandomTree(uint64_t seed) { return Maker(seed).Tree(0); }

}  // namespace ringmaster::wiring
