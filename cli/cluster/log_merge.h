// SPDX-License-Identifier: Apache-2.0

// Merges the logs of several ranks into one text, ordered by time. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::cli {

struct RankLog {
  std::string name;  // prefix of each line: "3", or "3/sidecar" when the pod has several containers
  std::string text;  // lines with timestamps, as the API server returns them for timestamps=true
};

// Returns TEXT for "TIME TEXT".
std::string_view WithoutTime(std::string_view line);

// Returns all lines ordered by time, each as "[NAME] TEXT" with the names aligned. Lines of one log keep
// their order even if their times do not increase. A line without a time has the time of the line before it.
std::string MergeLogs(const std::vector<RankLog>& logs);

}  // namespace ringmaster::cli
