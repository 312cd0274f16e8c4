// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/available_memory.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "base/file.h"

namespace ringmaster::fabric::shm {
namespace {

constexpr size_t kLongestFile = 1 << 16;

// The names of one version of control groups.
struct Version {
  std::string_view limit;
  std::string_view usage;
  std::string_view cached[2];  // in memory.stat: pages of files
};
constexpr Version kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Version kVersion2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

// Returns the number after `name` at the beginning of a line of "name value" pairs.
std::optional<uint64_t> Field(const std::string& text, std::string_view name) {
  std::istringstream in(text);
  std::string key;
  std::string line;
  uint64_t value = 0;
  while (in >> key) {
    if (key == name && in >> value) return value;
    in.clear();
    std::getline(in, line);
  }
  return std::nullopt;
}

// Returns the number in a file; nullopt when there is none, such as "max".
std::optional<uint64_t> Number(const std::string& path) {
  const auto text = ReadFile(path, kLongestFile);
  if (!text.ok()) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> LeftIn(const std::string& folder, const Version& version) {
  const auto limit = Number(folder + "/" + std::string(version.limit));
  const auto usage = Number(folder + "/" + std::string(version.usage));
  if (!limit || !usage) return std::nullopt;
  uint64_t cached = 0;
  if (const auto stat = ReadFile(folder + "/memory.stat", kLongestFile); stat.ok())
    for (const std::string_view name : version.cached) cached += Field(*stat, name).value_or(0);
  const uint64_t used = *usage - std::min(*usage, cached);
  return *limit - std::min(*limit, used);
}

// Takes the least of the group at `path` and all above it. In a container, the path may be that of the host,
// while the mounted tree begins with the container's group: only the groups that exist count.
void LimitByGroups(const std::string& mount, std::string path, const Version& version,
                   std::optional<AvailableMemory>* least) {
  while (true) {
    const std::string folder = mount + (path == "/" ? "" : path);
    if (const auto left = LeftIn(folder, version); left && (!*least || *left < (*least)->bytes))
      *least = AvailableMemory{*left, folder + "/" + std::string(version.limit)};
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(const std::string& root) {
  std::optional<AvailableMemory> least;
  if (const auto text = ReadFile(root + "/proc/meminfo", kLongestFile); text.ok())
    if (const auto kib = Field(*text, "MemAvailable:")) least = AvailableMemory{*kib * 1024, "MemAvailable"};
  const auto groups = ReadFile(root + "/proc/self/cgroup", kLongestFile);
  if (!groups.ok()) return least;
  std::istringstream in(*groups);
  std::string line;
  while (std::getline(in, line)) {  // "0::/kubepods/pod7" or "9:memory:/kubepods/pod7"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      LimitByGroups(root + "/sys/fs/cgroup", path, kVersion2, &least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      LimitByGroups(root + "/sys/fs/cgroup/memory", path, kVersion1, &least);
    }
  }
  return least;
}

}  // namespace ringmaster::fabric::shm
