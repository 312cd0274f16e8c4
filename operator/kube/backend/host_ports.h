// SPDX-License-Identifier: Apache-2.0

// Allocates ports for jobs on hostNetwork. Each job gets a separate range, so that two jobs can share a node.
// Pure. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
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

// Which job, namespace/name, holds which ports. A search looks at the jobs that hold some, not at all jobs.
class PortTable {
 public:
  // Replaces the ranges of the job. A job without ports holds none.
  void Set(const std::string& job, std::vector<PortRange> ranges);
  // Returns the lowest `count` ports in a row within `all` that no other job uses, or those at `held` if they
  // are free; nullopt: none are free. Then the job waits for some, and while it does, no namespace gets more
  // than its share. `uses`: whether a job that holds ports still uses them. One that does not is forgotten
  // until the next Set. `waits`: whether a job that got none still wants some.
  using Ask = std::function<bool(const std::string& job)>;
  std::optional<PortRange> Find(const PortRange& all, const std::string& job, int32_t count,
                                const PortRange& held, const Ask& uses, const Ask& waits);

 private:
  // Whether the namespace of the job would have more than its share, while a job of another one waits.
  bool ExceedsShare(const PortRange& all, const std::string& job, int32_t count) const;

  std::map<std::string, std::vector<PortRange>> held_;
  std::set<std::string> waiting_;  // jobs that got none
};

}  // namespace ringmaster::kube
