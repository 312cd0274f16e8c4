// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/address.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"

namespace ringmaster::fabric {
namespace {

constexpr size_t kMaxSegments = 64;

std::string FirstLine(const std::string& path) {
  auto text = ReadFile(path, 1 << 16);
  if (!text.ok()) return {};
  return text->substr(0, text->find('\n'));
}

// "max 100000" or "150000 100000" (cgroup v2); quota and period in two files (v1). 0: no limit.
double QuotaCpus() {
  double quota = 0;
  double period = 0;
  std::istringstream v2(FirstLine("/sys/fs/cgroup/cpu.max"));
  if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  std::istringstream v1_quota(FirstLine("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  std::istringstream v1_period(FirstLine("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

}  // namespace

std::string EncodeAddress(const MemberAddress& address) {
  Json segments = Json::array();
  for (const Segment& segment : address.segments) segments.push_back({segment.fd, segment.bytes});
  return DumpJson({{"uuid", address.uuid},
                   {"host", address.host_id},
                   {"pid", address.pid},
                   {"segments", segments},
                   {"ucx", EncodeBase64(address.ucx)}});
}

Result<MemberAddress> DecodeAddress(std::string_view text) {
  RM_ASSIGN(const Json json, ParseJson(text));
  MemberAddress address;
  RM_ASSIGN(address.uuid, JsonString(json, "uuid"));
  RM_ASSIGN(address.host_id, JsonString(json, "host"));
  RM_ASSIGN(address.pid, JsonInt(json, "pid"));
  RM_ASSIGN(const std::string ucx, JsonString(json, "ucx"));
  RM_ASSIGN(address.ucx, DecodeBase64(ucx));
  if (address.uuid.size() != 32 || address.uuid.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Error{Code::kInvalid, "uuid: not 32 hexadecimal digits"};
  if (address.pid <= 0) return Error{Code::kInvalid, "pid: must be positive"};
  const auto segments = json.find("segments");
  if (segments == json.end() || !segments->is_array() || segments->size() > kMaxSegments)
    return Error{Code::kInvalid, fmt::format("segments: must be a list of at most {}", kMaxSegments)};
  for (const Json& item : *segments) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_number_unsigned() ||
        !item[1].is_number_unsigned())
      return Error{Code::kInvalid, "segments: each must be [fd, bytes]"};
    const auto fd = item[0].get<uint64_t>();
    if (fd > 1u << 30) return Error{Code::kInvalid, "segments: no such fd"};
    address.segments.push_back({static_cast<int>(fd), item[1].get<uint64_t>()});
  }
  return address;
}

std::string NewUuid() {
  unsigned char bytes[16];
  CHECK(::getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "getrandom failed");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string HostId() {
  struct stat ns = {};
  const bool known = ::stat("/proc/self/ns/pid", &ns) == 0;
  return fmt::format("{}/{}", FirstLine("/proc/sys/kernel/random/boot_id"), known ? ns.st_ino : 0);
}

int UsableCpus() {
  cpu_set_t set;
  int cpus = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  const double quota = QuotaCpus();
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(quota + 0.5));
  return std::max(cpus, 1);
}

}  // namespace ringmaster::fabric
