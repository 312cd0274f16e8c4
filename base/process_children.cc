// SPDX-License-Identifier: Apache-2.0

#include "base/process_children.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/file.h"

namespace ringmaster {

// The kernel lists children by the thread that started them, with spaces between them.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", pid), error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    const Result<std::string> list = ReadFile(threads->path().string() + "/children");
    if (!list.ok()) continue;
    const char* at = list->data();
    const char* const end = at + list->size();
    while (at < end) {
      pid_t child = 0;
      const auto [next, failed] = std::from_chars(at, end, child);
      if (failed != std::errc()) break;
      children.push_back(child);
      at = next + 1;
    }
  }
  return children;
}

std::vector<pid_t> ChildrenOfThisProcess() { return ChildrenOf(::getpid()); }

}  // namespace ringmaster
