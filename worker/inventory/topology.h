// SPDX-License-Identifier: Apache-2.0

// Which devices of a machine are near each other, by their locations on the PCI bus: which nic a GPU's
// traffic should leave by, and in which order the GPUs of a machine should stand in a ring. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ringmaster::inventory {

// The bridges from the CPU down to the device, as in its path under /sys/devices:
// {"pci0000:16", "0000:16:01.0", "0000:17:00.0", "0000:18:00.0"}. Empty: unknown (a virtual machine may hide
// it).
struct PciLocation {
  std::vector<std::string> path;
  int32_t numa_node = -1;
  bool operator==(const PciLocation&) const = default;
};

// Nearest first.
enum class Closeness : uint8_t {
  kSwitch,    // below one PCI switch: traffic does not touch the CPU
  kRoot,      // below one root complex of the CPU
  kNumaNode,  // on one socket
  kSystem,    // from socket to socket
  kUnknown,
};
const char* ClosenessName(Closeness closeness);

Closeness ClosenessOf(const PciLocation& a, const PciLocation& b);

// For each GPU the index of its nic: the nearest ones, and among those such that none is shared while
// another one as near is free. -1 for all when there is no nic.
std::vector<int> AssignNics(std::span<const PciLocation> gpus, std::span<const PciLocation> nics);

// For each GPU the nics to use: that of AssignNics, and those that are as near and no other GPU's. None where
// distances are unknown.
std::vector<std::vector<int>> NearbyNics(std::span<const PciLocation> gpus,
                                         std::span<const PciLocation> nics);

// The order in which GPUs should follow each other in a ring: neighbours are joined by NVLink where they can
// be, else near by PCI. `nvlinks[i][j]` counts the links between i and j; empty: none or unknown. Of equal
// orders it is the one by number.
std::vector<int> RingOrder(std::span<const PciLocation> gpus, const std::vector<std::vector<int>>& nvlinks);

}  // namespace ringmaster::inventory
