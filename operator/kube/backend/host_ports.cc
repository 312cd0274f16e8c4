// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/host_ports.h"

#include <algorithm>

namespace ringmaster::kube {

std::optional<PortRange> FreePorts(const PortRange& all, std::vector<PortRange> taken, int32_t count) {
  std::sort(taken.begin(), taken.end(),
            [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
  int32_t first = all.first;
  for (const PortRange& range : taken) {
    if (range.count == 0) continue;
    if (first + count <= range.first) break;
    first = std::max(first, range.first + range.count);
  }
  if (count > all.count || first > all.first + all.count - count) return std::nullopt;
  return PortRange{first, count};
}

}  // namespace ringmaster::kube
