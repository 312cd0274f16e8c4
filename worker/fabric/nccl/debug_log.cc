// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/debug_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file.h"
#include "base/host_name.h"

namespace ringmaster::fabric::nccl {
namespace {

std::string FromEnvironment(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Adds INIT, under which NCCL logs its choices, to a list of NCCL_DEBUG_SUBSYS. A list that starts with "^"
// names the subsystems to leave out.
std::string WithInit(const std::string& list) {
  if (list.empty()) return list;  // NCCL's default includes INIT
  if (list.front() != '^') return list + ",INIT";
  std::string others;
  for (size_t begin = 1; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (::strcasecmp(name.c_str(), "INIT") != 0 && ::strcasecmp(name.c_str(), "ALL") != 0)
      others += (others.empty() ? "^" : ",") + name;
    begin = end + 1;
  }
  return others.empty() ? "ALL" : others;
}

// Expands a file name as NCCL does: %h is the host name up to its first dot, %p the process id.
std::string Expanded(const std::string& path) {
  std::string name = HostName();
  name.resize(std::min(name.find('.'), name.size()));
  std::string expanded;
  for (size_t i = 0; i < path.size(); ++i) {
    const char next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
    if (next == 'h') {
      expanded += name;
    } else if (next == 'p') {
      expanded += std::to_string(::getpid());
    } else if (next == '%') {
      expanded += '%';
    } else {
      expanded += path[i];
      continue;
    }
    ++i;
  }
  return expanded;
}

}  // namespace

Result<DebugLog> DebugLog::Open() {
  DebugLog log;
  const std::string level = FromEnvironment("NCCL_DEBUG");
  const bool detailed = std::ranges::any_of(std::array{"INFO", "ABORT", "TRACE"}, [&](const char* name) {
    return ::strcasecmp(level.c_str(), name) == 0;  // as NCCL compares them
  });
  if (detailed) {
    log.show_ = Show::kAll;
    const std::string list = WithInit(FromEnvironment("NCCL_DEBUG_SUBSYS"));
    if (!list.empty()) ::setenv("NCCL_DEBUG_SUBSYS", list.c_str(), 1);
  }
  if (!detailed) {
    ::setenv("NCCL_DEBUG", "INFO", 1);
    ::setenv("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV", 1);
  }
  const std::string file = FromEnvironment("NCCL_DEBUG_FILE");
  // Output to a terminal or a pipe cannot be read back: it goes to this process's log instead.
  if (!file.empty() && !file.starts_with("/dev/")) {
    log.path_ = Expanded(file);
    log.show_ = Show::kWarnings;
    return log;
  }
  log.file_ = Fd(::memfd_create("nccl-log", MFD_CLOEXEC));
  if (!log.file_.valid()) return ErrnoError("a memory file for NCCL's log", errno);
  ::setenv("NCCL_DEBUG_FILE", fmt::format("/proc/{}/fd/{}", ::getpid(), log.file_.get()).c_str(), 1);
  return log;
}

std::vector<std::string> DebugLog::Read() {
  if (!file_.valid()) file_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::string> lines;
  if (!file_.valid()) return lines;
  std::array<char, 4096> part;
  while (true) {
    const ssize_t got = ::pread(file_.get(), part.data(), part.size(), read_);
    if (got <= 0) break;
    read_ += got;
    partial_line_.append(part.data(), static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end = 0; (end = partial_line_.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(partial_line_.substr(begin, end - begin));
  partial_line_.erase(0, begin);
  // Release the memory of what was read; NCCL continues to write behind it.
  if (path_.empty())
    ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, read_ & ~off_t{4095});
  return lines;
}

}  // namespace ringmaster::fabric::nccl
