// SPDX-License-Identifier: Apache-2.0

#include <filesystem>
#include <system_error>

#include "worker/inventory/inventory.h"
#include "worker/inventory/text_file.h"

namespace ringmaster::inventory {
namespace {

// "4: ACTIVE" -> "ACTIVE"
std::string AfterColon(const std::string& text) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// A RoCE port names its network device in the first entry of its GID table. Older drivers do not: there it is
// the only network device of the PCI function.
std::string NetworkDevice(const std::string& device, const std::string& port) {
  if (auto name = ReadTrimmed(port + "/gid_attrs/ndevs/0"); name && !name->empty()) return *name;
  const std::vector<std::string> names = NamesIn(device + "/device/net");
  return names.size() == 1 ? names[0] : std::string();
}

// Returns the PCI address of the NIC.
std::string PciOf(const std::string& device) {
  std::error_code error;
  const auto target = std::filesystem::canonical(device + "/device", error);
  return error ? std::string() : target.filename().string();
}

// Counts the addresses by which other machines can reach a port. The fabric assigns those of InfiniBand. Over
// Ethernet the network device needs an address in this network namespace; link-local addresses are not
// routed.
int32_t ReachableGids(const std::string& port, bool ethernet) {
  int32_t count = 0;
  for (const std::string& index : NamesIn(port + "/gids")) {
    const std::string gid = ReadTrimmed(port + "/gids/" + index).value_or("");
    const bool unset =
        gid.find_first_not_of("0:") == std::string::npos || gid == "fe80:0000:0000:0000:0000:0000:0000:0000";
    if (unset || (ethernet && gid.starts_with("fe80:"))) continue;
    if (ethernet && ReadTrimmed(port + "/gid_attrs/ndevs/" + index).value_or("").empty()) continue;
    ++count;
  }
  return count;
}

// A virtual device, such as Soft-RoCE, has no `device` link; `ibdev` names the device of every file.
bool HasFile(const std::string& root, const std::string& device) {
  const std::string folder = root + "/sys/class/infiniband_verbs";
  for (const std::string& name : NamesIn(folder))
    if (ReadTrimmed(folder + "/" + name + "/ibdev") == device && Exists(root + "/dev/infiniband/" + name))
      return true;
  return false;
}

}  // namespace

std::vector<RdmaPort> ReadRdma(const std::string& root, std::vector<std::string>* notes) {
  const std::string folder = root + "/sys/class/infiniband";
  std::vector<RdmaPort> found;
  for (const std::string& name : NamesIn(folder)) {
    const std::string device = folder + "/" + name;
    for (const std::string& number : NamesIn(device + "/ports")) {
      const std::string port = device + "/ports/" + number;
      RdmaPort one;
      one.device = name;
      one.port = static_cast<int32_t>(LeadingNumber(number).value_or(0));
      one.state = AfterColon(ReadTrimmed(port + "/state").value_or("unknown"));
      one.rate = ReadTrimmed(port + "/rate").value_or("");
      one.link_layer = ReadTrimmed(port + "/link_layer").value_or("");
      one.node_guid = ReadTrimmed(device + "/node_guid").value_or("");
      one.numa_node = static_cast<int32_t>(ReadNumber(device + "/device/numa_node").value_or(-1));
      const bool ethernet = one.link_layer == "Ethernet";
      if (ethernet) one.netdev = NetworkDevice(device, port);
      one.location = ReadPciLocation(root, PciOf(device));
      one.usable = HasFile(root, name);
      one.gids = ReachableGids(port, ethernet);
      found.push_back(std::move(one));
    }
  }
  if (found.empty()) {
    notes->push_back("RDMA: no device under /sys/class/infiniband");
    return found;
  }
  // In a pod the kernel lists the node's devices even if the pod was assigned none.
  if (NamesIn(root + "/dev/infiniband").empty()) {
    notes->push_back(
        "RDMA: the node has devices, but this process cannot use them: there is no /dev/infiniband");
  }
  return found;
}

}  // namespace ringmaster::inventory
