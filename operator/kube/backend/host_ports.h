// SPDX-License-Identifier: Apache-2.0

// Ports for jobs on hostNetwork: each job has a range of its own, so that no two of them can meet on a node.
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

// The lowest `count` ports in a row of `all` that none of `taken` touches; nullopt: there are none.
std::optional<PortRange> FreePorts(const PortRange& all, std::vector<PortRange> taken, int32_t count);

}  // namespace ringmaster::kube
