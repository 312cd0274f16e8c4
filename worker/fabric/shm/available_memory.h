// SPDX-License-Identifier: Apache-2.0

// The memory that this process can still allocate before the kernel kills a process: the least of what the
// machine has and what each control group above the process leaves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ringmaster::fabric::shm {

struct AvailableMemory {
  uint64_t bytes = 0;
  std::string limit;  // what allows no more: "MemAvailable", or the path of a control group's limit
};

// Reads /proc/meminfo, /proc/self/cgroup and /sys/fs/cgroup (version 2, or the memory controller of version
// 1) below `root`, which tests set. nullopt when nothing can be read. Files in the page cache count as
// available: the kernel drops them before it kills a process.
std::optional<AvailableMemory> ReadAvailableMemory(const std::string& root = "");

}  // namespace ringmaster::fabric::shm
