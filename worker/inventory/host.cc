// SPDX-License-Identifier: Apache-2.0

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>

#include "worker/inventory/inventory.h"
#include "worker/inventory/text_file.h"

namespace ringmaster::inventory {
namespace {

constexpr std::array kFeatures = {"avx2",        "fma",         "avx512f",  "avx512bw", "avx512_vnni",
                                  "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
                                  "asimd",       "sve",         "bf16"};

// Returns the quota in a file of cgroup 2, "50000 100000"; 0: none, as "max 100000".
double QuotaIn(const std::string& file) {
  const auto both = ReadTrimmed(file);
  if (!both) return 0;
  const auto quota = LeadingNumber(*both);
  const size_t blank = both->find(' ');
  const auto period = blank == std::string::npos ? std::nullopt : LeadingNumber(both->substr(blank));
  return quota && period && *period > 0 ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
}

// Returns the least quota of the control groups of this process. In a container, /proc may name a path of the
// host, while the mounted tree begins with the container's group: only the groups that exist count. cgroup 1:
// two files, -1 for no limit.
double CpuQuota(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::string group;  // "0::/user.slice/build.scope"
  const std::string groups = ReadTrimmed(root + "/proc/self/cgroup").value_or("");
  if (const size_t at = groups.find("0::/"); at != std::string::npos)
    group = groups.substr(at + 3, groups.find('\n', at) - at - 3);
  double least = QuotaIn(mount + "/cpu.max");
  for (; group.size() > 1; group.resize(group.rfind('/'))) {
    const double quota = QuotaIn(mount + group + "/cpu.max");
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  if (least > 0) return least;
  const auto quota = ReadNumber(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = ReadNumber(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int64_t MemoryLimit(const std::string& root, int64_t total) {
  auto limit = ReadNumber(root + "/sys/fs/cgroup/memory.max");  // "max" is not a number
  if (!limit) limit = ReadNumber(root + "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  // cgroup 1 reports no limit as a number near 2^63.
  return limit && *limit < total ? *limit : 0;
}

bool HasWord(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

}  // namespace

Cpu ReadCpu(const std::string& root) {
  Cpu cpu;
  const std::string info = ReadTrimmed(root + "/proc/cpuinfo").value_or("");
  cpu.model = FieldOf(info, "model name").value_or(FieldOf(info, "CPU implementer").value_or("unknown"));
  for (size_t at = 0; at != std::string::npos; at = info.find("\nprocessor", at + 1)) {
    if (info.compare(at == 0 ? 0 : at + 1, 9, "processor") == 0) ++cpu.logical;
  }
  const std::string flags = FieldOf(info, "flags").value_or(FieldOf(info, "Features").value_or(""));
  for (const char* feature : kFeatures) {
    if (HasWord(flags, feature)) cpu.features.emplace_back(feature);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  cpu.usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : cpu.logical;
  cpu.quota = CpuQuota(root);
  return cpu;
}

int32_t UsableCpus(const Cpu& cpu) {
  const int32_t by_quota = cpu.quota > 0 ? static_cast<int32_t>(cpu.quota + 0.5) : cpu.usable;
  return std::max(1, std::min(cpu.usable, by_quota));
}

Memory ReadMemory(const std::string& root) {
  Memory memory;
  const std::string info = ReadTrimmed(root + "/proc/meminfo").value_or("");
  const auto bytes = [&info](const char* key) {
    return LeadingNumber(FieldOf(info, key).value_or("")).value_or(0) * 1024;
  };
  memory.total_bytes = bytes("MemTotal");
  memory.available_bytes = bytes("MemAvailable");
  memory.limit_bytes = MemoryLimit(root, memory.total_bytes);
  struct statvfs about = {};
  if (::statvfs((root + "/dev/shm").c_str(), &about) == 0) {
    memory.shm_bytes = static_cast<int64_t>(about.f_blocks) * static_cast<int64_t>(about.f_frsize);
  }
  return memory;
}

Privileges ReadPrivileges(const std::string& root) {
  Privileges privileges;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    privileges.memlock_bytes = static_cast<int64_t>(limit.rlim_cur);
  constexpr int kIpcLock = 14;
  const std::string status = ReadTrimmed(root + "/proc/self/status").value_or("");
  const std::string text = FieldOf(status, "CapEff").value_or("");
  uint64_t capabilities = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), capabilities, 16);
  privileges.ipc_lock = (capabilities >> kIpcLock & 1) != 0;
  return privileges;
}

// Checks the same files as UCX and NCCL.
std::string ReadGpuDirect(const std::string& root) {
  for (const char* module : {"/sys/kernel/mm/memory_peers/nv_mem/version",
                             "/sys/module/nvidia_peermem/version", "/sys/module/nv_peer_mem/version"})
    if (Exists(root + module)) return "nvidia_peermem";
  const std::string driver = ReadTrimmed(root + "/proc/driver/nvidia/version").value_or("");
  return driver.find("Open Kernel Module") == std::string::npos ? "" : "dma-buf";
}

std::vector<std::string> ReadInterfaces(const std::string& root) { return NamesIn(root + "/sys/class/net"); }

PciLocation ReadPciLocation(const std::string& root, const std::string& pci) {
  PciLocation location;
  const std::string link = root + "/sys/bus/pci/devices/" + pci;
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(link, error);
  if (pci.empty() || error) return location;
  bool inside = false;
  for (const auto& part : target) {
    inside = inside || part.string().starts_with("pci");
    if (inside) location.path.push_back(part.string());
  }
  location.numa_node = static_cast<int32_t>(ReadNumber(link + "/numa_node").value_or(-1));
  return location;
}

void FillLocations(const std::string& root, std::vector<Gpu>* gpus) {
  for (Gpu& gpu : *gpus) gpu.location = ReadPciLocation(root, gpu.pci);
}

}  // namespace ringmaster::inventory
