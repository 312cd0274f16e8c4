// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

namespace ringmaster::inventory {
namespace {

constexpr int64_t kMinMemlockBytes = int64_t{128} << 20;  // the minimum that UCX asks for
constexpr int64_t kMinShmBytes = int64_t{1} << 30;

// Collects the findings about one subject after the other. A subject without a problem gets one kOk finding.
class FindingsBuilder {
 public:
  void Begin(std::string subject, std::string when_ok) {
    End();
    subject_ = std::move(subject);
    ok_ = std::move(when_ok);
  }
  void Failure(std::string what, std::string remedy) {
    Add(Severity::kFailure, std::move(what), std::move(remedy));
  }
  void Warning(std::string what, std::string remedy) {
    Add(Severity::kWarning, std::move(what), std::move(remedy));
  }
  std::vector<Finding> Take() {
    End();
    return std::move(findings_);
  }

 private:
  void Add(Severity severity, std::string what, std::string remedy) {
    findings_.push_back({severity, subject_, std::move(what), std::move(remedy)});
    ok_.clear();
  }
  void End() {
    if (!ok_.empty()) findings_.push_back({Severity::kOk, subject_, ok_, ""});
  }

  std::vector<Finding> findings_;
  std::string subject_;
  std::string ok_;
};

std::string Variable(const Inventory& inventory, const char* name) {
  const auto found = inventory.variables.find(name);
  return found == inventory.variables.end() ? std::string() : found->second;
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(at);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

// Whether a filter of NCCL selects `name`. A filter lists prefixes; after "=" exact names; after "^" the
// names to leave out. A listed name may end with ":port".
bool MatchesFilter(const std::string& list, const std::string& name, const std::string& port) {
  std::string_view rest = list;
  const bool excluding = rest.starts_with('^');
  if (excluding) rest.remove_prefix(1);
  const bool whole = rest.starts_with('=');
  if (whole) rest.remove_prefix(1);
  const std::vector<std::string> wanted = Split(rest, ',');
  const bool listed = std::ranges::any_of(wanted, [&](const std::string& one) {
    const size_t colon = one.find(':');
    if (colon != std::string::npos && !port.empty() && one.substr(colon + 1) != port) return false;
    const std::string key = one.substr(0, colon);
    return whole ? name == key : name.starts_with(key);
  });
  return listed != excluding;
}

// Our images contain CUDA 13, which needs this driver or a newer one.
constexpr int kOldestDriver = 580;

void CheckDriver(const std::string& driver, FindingsBuilder* builder) {
  int major = 0;
  const auto [end, error] = std::from_chars(driver.data(), driver.data() + driver.size(), major);
  if (error != std::errc()) return;
  builder->Begin("gpu driver", driver);
  if (major < kOldestDriver)
    builder->Warning(fmt::format("driver {} is too old for CUDA 13", driver),
                     fmt::format("install driver {} or newer on the node, or CUDA's package for forward "
                                 "compatibility in the image",
                                 kOldestDriver));
}

void CheckGpu(const Gpu& gpu, FindingsBuilder* builder) {
  builder->Begin(fmt::format("gpu {}", gpu.index), gpu.name);
  if (gpu.rows_failed)
    builder->Failure("bad memory rows could not be replaced by spare rows",
                     "drain the node and replace the GPU");
  if (gpu.ecc_uncorrected.value_or(0) > 0)
    builder->Failure(fmt::format("{} memory errors that ECC could not correct", *gpu.ecc_uncorrected),
                     "drain the node and reset the GPU (nvidia-smi -r); replace the GPU if they recur");
  if (gpu.rows_pending)
    builder->Warning("bad memory rows wait to be replaced by spare rows", "drain the node and reset the GPU");
  if (gpu.nvlinks_down > 0 && gpu.nvlinks_up > 0)
    builder->Failure(
        fmt::format("{} of {} NVLinks are down", gpu.nvlinks_down, gpu.nvlinks_up + gpu.nvlinks_down),
        "drain the node, reset the GPU and check `nvidia-smi nvlink -e`");
  for (const std::string& why : gpu.throttled) {
    // Reaching the power limit is normal under load.
    if (why == "power cap") continue;
    builder->Warning(fmt::format("clocks are reduced: {}", why),
                     why.starts_with("thermal") ? "check the cooling of the node"
                                                : "check the power supplies of the node");
  }
  if (gpu.temperature_c && gpu.slowdown_c && *gpu.temperature_c >= *gpu.slowdown_c)
    builder->Warning(
        fmt::format("{} C; it reduces its clocks from {} C on", *gpu.temperature_c, *gpu.slowdown_c),
        "check the cooling of the node");
  if (gpu.pcie_width && gpu.max_pcie_width && *gpu.pcie_width < *gpu.max_pcie_width)
    builder->Warning(fmt::format("{} of {} PCIe lanes are in use", *gpu.pcie_width, *gpu.max_pcie_width),
                     "reseat the GPU, or check its slot");
  if (gpu.ecc == false)
    builder->Warning("ECC is off: memory errors go unnoticed",
                     "turn ECC on (nvidia-smi -e 1) and reset the GPU");
  if (gpu.mig == true)
    builder->Warning("it is partitioned into instances (MIG), between which NCCL does not work",
                     "train on one instance per worker, or turn MIG off: nvidia-smi -mig 0");
}

void CheckAllGpus(const Inventory& inventory, FindingsBuilder* builder) {
  for (const std::string& note : inventory.notes) {
    if (note.find("does not answer") == std::string::npos) continue;
    builder->Begin("gpu", "");
    builder->Failure(note.substr(note.find(": ") + 2),
                     "the GPU is lost: find its XID in `dmesg` of the node, drain the node and reboot it");
  }
  for (const Gpu& gpu : inventory.gpus) CheckGpu(gpu, builder);
  if (!inventory.gpus.empty()) return;
  builder->Begin("gpu", "none; training runs on the CPU");
  if (inventory.gpu_files)
    builder->Failure(
        "this container has GPUs, but cannot use the driver's library",
        "start the container with NVIDIA's runtime (runtimeClassName: nvidia, or the GPU "
        "operator's default) and an NVIDIA_DRIVER_CAPABILITIES that includes utility and compute");
}

void CheckPort(const Inventory& inventory, const RdmaPort& port, FindingsBuilder* builder) {
  builder->Begin(fmt::format("rdma {}:{}", port.device, port.port),
                 fmt::format("{}, {}, {}", port.state, port.link_layer, port.rate));
  if (!port.usable) {
    builder->Warning(
        "the node has it, but this process cannot use it: it has no file in /dev/infiniband",
        "request it: set spec.network.rdma.resource to the name that the device plugin advertises");
    return;
  }
  if (!port.active())
    builder->Failure(
        fmt::format("its state is {}", port.state),
        port.state == "DOWN"
            ? "check the cable and the switch"
            : "the fabric manager has not activated it: is its GUID in the PKey (ib-kubernetes, UFM)?");
  else if (port.gids == 0)
    builder->Failure("it has no address that other machines can reach",
                     port.link_layer == "Ethernet" ? "RoCE needs its network device, with an IP address, in "
                                                     "the pod: use a Multus network with an IPAM "
                                                     "(spec.network.networks), or hostNetwork"
                                                   : "is a subnet manager running?");
  const std::string list = Variable(inventory, "NCCL_IB_HCA");
  if (!list.empty() && !MatchesFilter(list, port.device, std::to_string(port.port)))
    builder->Warning(fmt::format("NCCL_IB_HCA ({}) excludes it", list),
                     "unset the variable, or add this device");
}

bool HasTransport(const Inventory& inventory, std::initializer_list<std::string_view> heads) {
  return std::ranges::any_of(inventory.transports, [&](const Transport& one) {
    return std::ranges::any_of(heads, [&](std::string_view head) { return one.name.starts_with(head); });
  });
}

void CheckNetwork(const Inventory& inventory, FindingsBuilder* builder) {
  std::vector<const RdmaPort*> working;
  for (const RdmaPort& port : inventory.rdma) {
    CheckPort(inventory, port, builder);
    if (port.usable && port.active() && port.gids > 0) working.push_back(&port);
  }
  if (inventory.rdma.empty()) builder->Begin("rdma", "none; gradients travel over TCP");
  if (working.empty()) return;

  builder->Begin("rdma", fmt::format("{} ports work", working.size()));
  const Privileges& privileges = inventory.privileges;
  if (!privileges.ipc_lock && privileges.memlock_bytes >= 0 && privileges.memlock_bytes < kMinMemlockBytes)
    builder->Failure(fmt::format("this process may pin {} KiB of memory", privileges.memlock_bytes / 1024),
                     "add the capability IPC_LOCK (a job that requests RDMA has it; it takes effect only for "
                     "a container's root user), or raise the limit");
  std::set<std::string> rates;
  for (const RdmaPort* port : working) rates.insert(port->rate);
  if (rates.size() > 1)
    builder->Warning(fmt::format("ports of different rates: {}", fmt::join(rates, ", ")),
                     "a link may have negotiated a lower rate: check its cable");
  if (working.size() < inventory.gpus.size())
    builder->Warning(fmt::format("{} ports for {} GPUs", working.size(), inventory.gpus.size()),
                     "request as many NICs as GPUs, if the node has them");
  if (const std::string list = Variable(inventory, "NCCL_IB_HCA");
      !list.empty() && std::ranges::none_of(working, [&](const RdmaPort* port) {
        return MatchesFilter(list, port->device, std::to_string(port->port));
      }))
    builder->Failure(fmt::format("NCCL_IB_HCA ({}) selects no working port: NCCL would use sockets", list),
                     "unset the variable, or select one of these ports");
  if (Variable(inventory, "NCCL_IB_DISABLE") == "1")
    builder->Failure("NCCL_IB_DISABLE disables RDMA", "unset the variable");

  builder->Begin("ucx", "it sees the RDMA ports");
  if (!HasTransport(inventory, {"rc", "dc", "ud", "srd"}))
    builder->Failure("UCX has no RDMA transport: libuct_ib.so, or the driver's library, is missing",
                     "install the InfiniBand part of UCX and rdma-core in the image");
  if (const std::string tls = Variable(inventory, "UCX_TLS"); !tls.empty() && !tls.starts_with('^')) {
    const std::vector<std::string> names = Split(tls, ',');
    const auto is_rdma = [](const std::string& name) {
      return name == "all" || name == "ib" || name.starts_with("rc") || name.starts_with("dc") ||
             name.starts_with("ud");
    };
    if (std::ranges::none_of(names, is_rdma))
      builder->Failure(fmt::format("UCX_TLS ({}) excludes RDMA: gradients would travel over TCP", tls),
                       "unset the variable; recipes for MPI set it where UCX carries no data");
  }
}

void CheckGpuTraffic(const Inventory& inventory, FindingsBuilder* builder) {
  if (inventory.gpus.empty()) return;
  builder->Begin("nccl", "version " + inventory.nccl.version);
  if (inventory.nccl.version.empty())
    builder->Warning("libnccl.so.2 is not installed: GPUs would exchange gradients through the host",
                     "install NCCL 2.18 or newer in the image");
  if (!inventory.nccl.plugin.empty() && !inventory.nccl.plugin_found)
    builder->Failure(
        fmt::format("the net plugin {} cannot be loaded: NCCL would use sockets", inventory.nccl.plugin),
        "is it in the image and in LD_LIBRARY_PATH?");
  if (const std::string names = Variable(inventory, "NCCL_SOCKET_IFNAME"); !names.empty()) {
    const auto chosen = [&](const std::string& name) {
      return name != "lo" && MatchesFilter(names, name, "");
    };
    if (std::ranges::none_of(inventory.interfaces, chosen))
      builder->Failure(fmt::format("NCCL_SOCKET_IFNAME ({}) selects none of the interfaces {}", names,
                                   fmt::join(inventory.interfaces, ", ")),
                       "unset the variable, or select the pod's interface, usually eth0");
  }

  std::vector<PciLocation> nics;
  std::vector<PciLocation> gpus;
  std::vector<std::string> names;
  for (const RdmaPort& port : inventory.rdma) {
    if (!port.usable || !port.active()) continue;
    nics.push_back(port.location);
    names.push_back(fmt::format("{}:{}", port.device, port.port));
  }
  if (nics.empty()) return;
  for (const Gpu& gpu : inventory.gpus) gpus.push_back(gpu.location);
  builder->Begin("gpudirect", "NICs access GPU memory by " + inventory.gpu_direct);
  if (inventory.gpu_direct.empty())
    builder->Warning("NICs cannot access GPU memory: all data goes through the host",
                     "use the open kernel modules of the driver (DMA-BUF), or load nvidia_peermem");
  const std::vector<int> nearest = AssignNics(gpus, nics);
  for (size_t i = 0; i < gpus.size(); ++i) {
    const auto nic = static_cast<size_t>(nearest[i]);
    const Closeness closeness = ClosenessOf(gpus[i], nics[nic]);
    if (closeness == Closeness::kSystem)
      builder->Warning(
          fmt::format("GPU {} and its nearest NIC {} are on different sockets", inventory.gpus[i].index,
                      names[nic]),
          "allocate devices by topology: use the kubelet's topology manager, or DRA by PCI root");
    if (closeness == Closeness::kUnknown)
      builder->Warning(
          fmt::format("the distance of GPU {} to its NIC is unknown: a virtual machine hides the PCI bus",
                      inventory.gpus[i].index),
          "set NCCL_TOPO_FILE to the provider's topology file");
  }
}

void CheckHost(const Inventory& inventory, FindingsBuilder* builder) {
  const Memory& memory = inventory.memory;
  builder->Begin("shm", fmt::format("/dev/shm has {} MiB", memory.shm_bytes >> 20));
  if (memory.shm_bytes < kMinShmBytes && inventory.gpus.size() > 1)
    builder->Warning(fmt::format("/dev/shm has {} MiB, which is little for {} GPUs", memory.shm_bytes >> 20,
                                 inventory.gpus.size()),
                     "mount an emptyDir of medium Memory there; the pods of a job have one");
}

}  // namespace

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warn";
    case Severity::kFailure:
      return "FAIL";
  }
  return "?";
}

std::vector<Finding> CheckHealth(const Inventory& inventory) {
  FindingsBuilder builder;
  CheckHost(inventory, &builder);
  CheckDriver(inventory.gpu_driver, &builder);
  CheckAllGpus(inventory, &builder);
  CheckNetwork(inventory, &builder);
  CheckGpuTraffic(inventory, &builder);
  return builder.Take();
}

std::vector<Finding> CheckGpus(const Inventory& inventory) {
  FindingsBuilder builder;
  CheckAllGpus(inventory, &builder);
  return builder.Take();
}

bool Healthy(const std::vector<Finding>& findings) {
  return std::ranges::none_of(findings,
                              [](const Finding& one) { return one.severity == Severity::kFailure; });
}

std::string HealthTable(const std::vector<Finding>& findings) {
  std::string table;
  for (const Finding& one : findings) {
    table += fmt::format("{:<5} {:<16} {}\n", SeverityName(one.severity), one.subject, one.what);
    if (!one.remedy.empty()) table += fmt::format("{:<22} -> {}\n", "", one.remedy);
  }
  return table;
}

std::string HealthJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& one : findings)
    list.push_back({{"grade", SeverityName(one.severity)},
                    {"subject", one.subject},
                    {"what", one.what},
                    {"remedy", one.remedy}});
  const Json json = {{"healthy", Healthy(findings)}, {"findings", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ringmaster::inventory
