// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/process_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/process_children.h"

namespace ringmaster::agent {
namespace {

constexpr int kMaxDepth = 16;  // of processes below the first one

// Returns the number that follows `name` in a text of lines "name value"; 0: there is none.
uint64_t NumberAfter(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  uint64_t value = 0;
  if (at != std::string_view::npos)
    std::from_chars(text.data() + at + name.size(), text.data() + text.size(), value);
  return value;
}

ProcessWork WorkOfOne(pid_t pid) {
  ProcessWork work;
  const Result<std::string> stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!stat.ok()) return work;
  // The fields after the name, which may contain anything: the state, and 11 to 14 are times.
  const size_t name_end = stat->rfind(')');
  char state = 0;
  long long times[4] = {};
  if (name_end != std::string::npos &&
      std::sscanf(stat->c_str() + name_end + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld", &state, &times[0],
                  &times[1], &times[2], &times[3]) == 5) {
    static const long kTicksPerSecond = ::sysconf(_SC_CLK_TCK);
    const auto ticks = static_cast<double>(times[0] + times[1] + times[2] + times[3]);
    work.cpu = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(ticks / static_cast<double>(kTicksPerSecond)));
    work.stopped = state == 'T';  // and not 't': a debugger
    work.blocked = state == 'D';
  }
  if (const Result<std::string> io = ReadFile(fmt::format("/proc/{}/io", pid)); io.ok())
    work.io_bytes = NumberAfter(*io, "rchar: ") + NumberAfter(*io, "wchar: ");
  return work;
}

void AddWork(pid_t pid, int depth, ProcessWork* work) {
  *work += WorkOfOne(pid);
  if (depth >= kMaxDepth) return;
  for (const pid_t child : ChildrenOf(pid)) AddWork(child, depth + 1, work);
}

void AddReceivers(pid_t pid, int signal, int depth, std::vector<pid_t>* out) {
  if (TakesSignal(pid, signal)) return out->push_back(pid);
  if (depth >= kMaxDepth) return;
  for (const pid_t child : ChildrenOf(pid)) AddReceivers(child, signal, depth + 1, out);
}

}  // namespace

ProcessWork& ProcessWork::operator+=(const ProcessWork& other) {
  cpu += other.cpu;
  io_bytes += other.io_bytes;
  stopped = stopped || other.stopped;
  blocked = blocked || other.blocked;
  return *this;
}

ProcessWork WorkOf(pid_t pid) {
  ProcessWork work;
  AddWork(pid, 0, &work);
  return work;
}

bool TakesSignal(pid_t pid, int signal) {
  const Result<std::string> status = ReadFile(fmt::format("/proc/{}/status", pid));
  if (!status.ok()) return false;
  for (const std::string_view field : {"\nSigCgt:\t", "\nSigBlk:\t"}) {
    const size_t at = status->find(field);
    if (at == std::string::npos) continue;
    uint64_t mask = 0;
    std::from_chars(status->data() + at + field.size(), status->data() + status->size(), mask, 16);
    if (((mask >> (signal - 1)) & 1) != 0) return true;
  }
  return false;
}

std::string DescribeProcesses(const std::vector<pid_t>& pids) {
  constexpr size_t kMostNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(pids.size(), kMostNamed); ++i) {
    const Result<std::string> stat = ReadFile(fmt::format("/proc/{}/stat", pids[i]));
    // "77 (cat) D 1 ...": the name may contain anything.
    const size_t name = stat.ok() ? stat->find('(') : std::string::npos;
    const size_t end = stat.ok() ? stat->rfind(") ") : std::string::npos;
    text += fmt::format("{}pid {}", text.empty() ? "" : "; ", pids[i]);
    if (name != std::string::npos && end != std::string::npos && name < end && end + 2 < stat->size())
      text += fmt::format(" {}, state {}", stat->substr(name, end + 1 - name), (*stat)[end + 2]);
  }
  if (pids.size() > kMostNamed) text += fmt::format("; {} more", pids.size() - kMostNamed);
  return text;
}

std::vector<pid_t> ReceiversOf(pid_t pid, int signal) {
  std::vector<pid_t> receivers;
  AddReceivers(pid, signal, 0, &receivers);
  return receivers;
}

}  // namespace ringmaster::agent
