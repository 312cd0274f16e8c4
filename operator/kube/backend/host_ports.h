// SPDX-License-Identifier: Apache-2.0

// Allocates ports for jobs on hostNetwork. Each job gets a separate range, so that two jobs can share a node.
// Pure. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
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

// Which job holds which ports. A search looks at the jobs that hold some, not at all jobs.
class PortTable {
 public:
  // Replaces the ranges of the job. A job without ports holds none.
  void Set(const std::string& job, std::vector<PortRange> ranges);
  // Returns the lowest `count` ports in a row within `all` that no job uses; nullopt: none are free. `uses`:
  // whether a job that holds ports still uses them. One that does not is forgotten until the next Set, since
  // it has ended.
  std::optional<PortRange> Find(const PortRange& all, int32_t count,
                                const std::function<bool(const std::string& job)>& uses);

 private:
  std::map<std::string, std::vector<PortRange>> held_;
};

}  // namespace ringmaster::kube
