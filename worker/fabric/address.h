// SPDX-License-Identifier: Apache-2.0

// The address of a member, which the other members need to reach it, and the facts about its machine behind
// it. Value types and pure functions; functions that read the system say so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::fabric {

// A memfd of the member. Processes of the same user and pid namespace open it as /proc/<pid>/fd/<fd>.
struct Segment {
  int fd = -1;
  uint64_t bytes = 0;
  bool operator==(const Segment&) const = default;
};

struct MemberAddress {
  std::string uuid;     // 32 hexadecimal digits; identifies one Fabric of one process, never reused
  std::string host_id;  // members with equal host_id share memory
  int64_t pid = 0;
  std::vector<Segment> segments;  // the control page, the staging area, then each allocation
  std::string ucx;                // UCX worker address, raw bytes; empty when the member runs without UCX
  bool operator==(const MemberAddress&) const = default;
};

std::string EncodeAddress(const MemberAddress& address);
Result<MemberAddress> DecodeAddress(std::string_view text);

// These read the system.
std::string NewUuid();
std::string HostId();  // boot id and pid namespace: equal exactly where /proc/<pid>/fd can be opened

// Returns the number of CPUs this process can use: the affinity mask, limited by the cgroup's quota. At least
// 1.
int UsableCpus();

}  // namespace ringmaster::fabric
