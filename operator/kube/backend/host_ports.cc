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

std::optional<PortRange> PortTable::Find(const PortRange& all, const std::string& job, int32_t count,
                                         const PortRange& held, const Ask& uses, const Ask& waits) {
  std::erase_if(held_, [&](const auto& item) { return !uses(item.first); });
  std::erase_if(waiting_, [&](const std::string& name) { return !waits(name); });
  std::vector<PortRange> taken;
  for (const auto& [name, ranges] : held_)
    if (name != job) taken.insert(taken.end(), ranges.begin(), ranges.end());
  std::optional<PortRange> found;
  if (!ExceedsShare(all, job, count)) {
    if (held.count >= count) found = FreePorts({held.first, count}, taken, count);
    if (!found) found = FreePorts(all, std::move(taken), count);
  }
  if (found)
    waiting_.erase(job);
  else
    waiting_.insert(job);
  return found;
}

bool PortTable::ExceedsShare(const PortRange& all, const std::string& job, int32_t count) const {
  const auto space_of = [](const std::string& name) { return name.substr(0, name.find('/')); };
  const std::string own = space_of(job);
  std::set<std::string> spaces = {own};
  for (const std::string& name : waiting_) spaces.insert(space_of(name));
  if (spaces.size() == 1) return false;  // no other namespace waits
  int64_t sum = count;
  for (const auto& [name, ranges] : held_) {
    spaces.insert(space_of(name));
    if (space_of(name) != own || name == job) continue;
    for (const PortRange& range : ranges) sum += range.count;
  }
  return sum > all.count / static_cast<int64_t>(spaces.size());
}

}  // namespace ringmaster::kube
