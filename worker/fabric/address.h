// SPDX-License-Identifier: Apache-2.0

// What a member tells the others about itself, and what it finds out about its machine. Value types and pure
// functions, but for the ones that say that they read the system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::fabric {

// A memfd of the member, reachable for processes of the same user and pid namespace as /proc/<pid>/fd/<fd>.
struct Segment {
  int fd = -1;
  uint64_t bytes = 0;
  bool operator==(const Segment&) const = default;
};

struct MemberAddress {
  std::string uuid;     // 32 hexadecimal digits: one Fabric of one process, never reused
  std::string host_id;  // members with equal host_id share memory
  int64_t pid = 0;
  std::vector<Segment> segments;  // the control page, the staging area, then each allocation
  std::string ucx;                // worker address, raw bytes; empty when the member runs without UCX
  bool operator==(const MemberAddress&) const = default;
};

std::string EncodeAddress(const MemberAddress& address);
Result<MemberAddress> DecodeAddress(std::string_view text);

// These read the system.
std::string NewUuid();
std::string HostId();  // boot id and pid namespace: equal exactly where /proc/<pid>/fd can be followed

// CPUs that this process can really use: the affinity mask, cut down by the cgroup's quota. At least 1.
int UsableCpus();

}  // namespace ringmaster::fabric
