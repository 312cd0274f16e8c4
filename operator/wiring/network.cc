// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/launch.h"
#include "operator/wiring/names.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

bool IsElasticFabricAdapter(const api::Rdma& rdma) { return rdma.resource.ends_with("/efa"); }

// Returns one attachment per device when the device count is a multiple of the networks: a network that is
// attached n times is listed n times.
std::string Attachments(const api::Network& network) {
  const int networks = static_cast<int>(network.networks.size());
  const int devices = network.rdma && !network.rdma->resource.empty() ? network.rdma->count : 1;
  const int times = devices % networks == 0 ? devices / networks : 1;
  std::string text;
  for (int i = 0; i < times; ++i) {
    for (const std::string& name : network.networks) text += (text.empty() ? "" : ",") + name;
  }
  return text;
}

void AddClaims(const api::Rdma& rdma, Json& spec, Json& container) {
  for (int i = 0; i < rdma.count; ++i) {
    const std::string name = rdma.count == 1 ? "rdma" : fmt::format("rdma-{}", i);
    ListIn(spec, "resourceClaims")
        .push_back({{"name", name}, {"resourceClaimTemplateName", rdma.claimTemplate}});
    ListIn(ObjectIn(container, "resources"), "claims").push_back({{"name", name}});
  }
}

// All pods of a node share its ports, so each pod uses a separate range, and declares it to the scheduler.
void AllocatePorts(int32_t first, int32_t count, Json& container) {
  Json ports = Json::array();
  for (int32_t i = 0; i < count; ++i) {
    ports.push_back({{"name", fmt::format("fabric-{}", i)},
                     {"containerPort", first + i},
                     {"hostPort", first + i},
                     {"protocol", "TCP"}});
  }
  container["ports"] = std::move(ports);
  ListIn(container, "env")
      .push_back({{"name", "UCX_TCP_PORT_RANGE"}, {"value", fmt::format("{}-{}", first, first + count - 1)}});
}

}  // namespace

void AddNetworkDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, Json& metadata,
                        Json& spec, Json& container) {
  const api::Network& network = job.spec.network;
  if (!network.networks.empty()) metadata["annotations"][kNetworksAnnotation] = Attachments(network);
  if (network.rdma && !network.rdma->claimTemplate.empty()) AddClaims(*network.rdma, spec, container);
  if (network.hostNetwork) {
    spec["hostNetwork"] = true;
    spec["dnsPolicy"] = "ClusterFirstWithHostNet";
    const int32_t ports = HostPortsPerPod(job.spec);
    if (context.host_port_base > 0) AllocatePorts(context.host_port_base + rank * ports, ports, container);
  }
}

int32_t HostPortsPerPod(const api::Spec& spec) {
  return kHostPortsPerRank * (api::RestartsInPlace(spec) ? api::ProgramsPerWorker(spec) : 1);
}

void AddNetworkVariables(const api::TrainingJob& job, Json& container) {
  if (NetworkVariables(job).empty()) return;
  Json& sources = ListIn(container, "envFrom");
  Json ours = {{"configMapRef", {{"name", NetworkConfigName(job.metadata.name)}}}};
  sources.insert(sources.begin(), std::move(ours));
}

Json NetworkVariables(const api::TrainingJob& job) {
  const api::Network& network = job.spec.network;
  Json variables = Json::object();
  if (!network.rdma) return variables;
  const api::Rdma& rdma = *network.rdma;
  // NCCL's bootstrap uses sockets and prefers interfaces of RDMA devices, which other pods may not reach. The
  // interface of a pod is always eth0; on the host network only the virtual interfaces are known to be wrong.
  variables["NCCL_SOCKET_IFNAME"] = network.hostNetwork ? "^lo,docker,cni,flannel,cali,veth,virbr" : "=eth0";
  if (IsElasticFabricAdapter(rdma)) {
    variables["FI_PROVIDER"] = "efa";
    variables["FI_EFA_USE_DEVICE_RDMA"] = "1";
    return variables;
  }
  // Both libraries silently fall back to TCP when they find no device. With these settings they fail.
  if (rdma.required && network.fallback == "fail") {
    variables["UCX_TLS"] = "^tcp";
    if (!rdma.resource.empty())
      variables["NCCL_NET"] = "IB";  // a claim may be for a device without InfiniBand
  }
  return variables;
}

Json NetworkConfigOf(const api::TrainingJob& job, const std::string& job_uid) {
  Json variables = NetworkVariables(job);
  if (variables.empty()) return {};
  Json map = NewObject("v1", "ConfigMap", NetworkConfigName(job.metadata.name), job, job_uid);
  map["data"] = std::move(variables);
  return map;
}

}  // namespace ringmaster::wiring
