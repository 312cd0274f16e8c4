// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/host_ports.h"

#include <algorithm>
#include <utility>

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

void PortTable::Set(const std::string& job, std::vector<PortRange> ranges) {
  std::erase_if(ranges, [](const PortRange& range) { return range.count == 0; });
  if (ranges.empty())
    held_.erase(job);
  else
    held_[job] = std::move(ranges);
}

std::optional<PortRange> PortTable::Find(const PortRange& all, int32_t count,
                                         const std::function<bool(const std::string& job)>& uses) {
  std::erase_if(held_, [&](const auto& item) { return !uses(item.first); });
  std::vector<PortRange> taken;
  for (const auto& [job, ranges] : held_) taken.insert(taken.end(), ranges.begin(), ranges.end());
  return FreePorts(all, std::move(taken), count);
}

}  // namespace ringmaster::kube
