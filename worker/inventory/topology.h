// SPDX-License-Identifier: Apache-2.0

// Which devices of a machine are near each other, by their locations on the PCI bus: which NIC should carry a
// GPU's traffic, and in which order the GPUs should follow each other in a ring. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ringmaster::inventory {

// The path from the CPU to the device, as under /sys/devices:
// {"pci0000:16", "0000:16:01.0", "0000:17:00.0", "0000:18:00.0"}. Empty: unknown (virtual machines hide it).
struct PciLocation {
  std::vector<std::string> path;
  int32_t numa_node = -1;
  bool operator==(const PciLocation&) const = default;
};

// Nearest first.
enum class Closeness : uint8_t {
  kSwitch,    // below one PCI switch: traffic does not pass the CPU
  kRoot,      // below one root complex of the CPU
  kNumaNode,  // on one socket
  kSystem,    // from socket to socket
  kUnknown,
};
const char* ClosenessName(Closeness closeness);

Closeness ClosenessOf(const PciLocation& a, const PciLocation& b);

// Returns the index of the NIC for each GPU: the nearest one, and of equally near ones the one that the
// fewest GPUs use. -1 for all without NICs.
std::vector<int> AssignNics(std::span<const PciLocation> gpus, std::span<const PciLocation> nics);

// Returns the NICs that each GPU should use: that of AssignNics, and those that are as near and assigned to
// no GPU. None if distances are unknown.
std::vector<std::vector<int>> NearbyNics(std::span<const PciLocation> gpus,
                                         std::span<const PciLocation> nics);

// Returns the order in which GPUs should follow each other in a ring: neighbours are joined by NVLink if
// possible, else near by PCI. `nvlinks[i][j]` counts the links between i and j; empty: none, or unknown.
// Equally good orders are resolved by index.
std::vector<int> RingOrder(std::span<const PciLocation> gpus, const std::vector<std::vector<int>>& nvlinks);

}  // namespace ringmaster::inventory
