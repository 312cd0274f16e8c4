// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/log_merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/kube/wall_time.h"

namespace ringmaster::cli {
namespace {

struct LogLine {
  kube::WallTime time{};
  size_t log = 0;
  std::string_view text;
};

}  // namespace

std::string_view WithoutTime(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || !kube::ParseWallTime(line.substr(0, space)).ok()) return line;
  return line.substr(space + 1);
}

std::string MergeLogs(const std::vector<RankLog>& logs) {
  std::vector<LogLine> lines;
  size_t width = 0;
  for (size_t i = 0; i < logs.size(); ++i) {
    width = std::max(width, logs[i].name.size());
    std::string_view rest = logs[i].text;
    kube::WallTime time{};
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (const auto read = kube::ParseWallTime(line.substr(0, line.find(' '))); read.ok())
        time = std::max(time, *read);
      lines.push_back({time, i, WithoutTime(line)});
    }
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const LogLine& a, const LogLine& b) { return a.time < b.time; });
  std::string text;
  for (const LogLine& line : lines)
    text += fmt::format("[{:>{}}] {}\n", logs[line.log].name, width, line.text);
  return text;
}

}  // namespace ringmaster::cli
