// SPDX-License-Identifier: Apache-2.0

// Logs of several ranks as one text, by time. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::cli {

struct RankLog {
  std::string name;  // before each line: "3", or "3.2" for the second container
  std::string text;  // lines as the API server gives them with timestamps=true
};

// "TIME TEXT" without its time.
std::string_view WithoutTime(std::string_view line);

// All lines by time, each as "[NAME] TEXT", names as wide as the widest. Lines of one log keep their order,
// whatever their times; one without a time comes at that of the line before it.
std::string MergeLogs(const std::vector<RankLog>& logs);

}  // namespace ringmaster::cli
