// SPDX-License-Identifier: Apache-2.0

// Allocates ports for jobs on hostNetwork. Each job gets a separate range, so that two jobs can share a node.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ringmaster::kube {

struct PortRange {
  int32_t first = 0;
  int32_t count = 0;  // 0: none
  bool operator==(const PortRange&) const = default;
};

// Returns the lowest `count` ports in a row within `all` that no range of `taken` overlaps; nullopt: none are
// free.
std::optional<PortRange> FreePorts(const PortRange& all, std::vector<PortRange> taken, int32_t count);

}  // namespace ringmaster::kube
