// SPDX-License-Identifier: Apache-2.0

#include "api/path.h"

#include <fmt/format.h>

namespace ringmaster::api {

Result<std::vector<PathSegment>> SplitPath(std::string_view path) {
  constexpr size_t kMostSegments = 64;
  const Error error{Code::kInvalid,
                    "not a path such as spec.workers.replicas or spec.restart.rules[0].action"};
  std::vector<PathSegment> segments;
  size_t i = 0;
  while (i < path.size()) {
    if (segments.size() == kMostSegments) return error;
    if (path[i] == '[') {
      const size_t close = path.find(']', i);
      if (close == std::string_view::npos || close == i + 1) return error;
      segments.push_back({std::string(path.substr(i + 1, close - i - 1)), true});
      i = close + 1;
      if (i < path.size() && path[i] != '.' && path[i] != '[') return error;
    } else {
      const size_t end = std::min(path.find_first_of(".[", i), path.size());
      if (end == i) return error;
      segments.push_back({std::string(path.substr(i, end - i)), false});
      i = end;
    }
    if (i < path.size() && path[i] == '.' && ++i == path.size()) return error;
  }
  if (segments.empty() || segments.front().bracketed) return error;
  return segments;
}

std::string Path::ToString() const {
  if (parent == nullptr) return std::string(name);
  std::string text = parent->ToString();
  if (index >= 0) return fmt::format("{}[{}]", text, index);
  if (!text.empty()) text += '.';
  return text.append(name);
}

bool IsUnder(std::string_view path, std::string_view ancestor) {
  if (!path.starts_with(ancestor)) return false;
  if (path.size() == ancestor.size() || ancestor.empty()) return true;
  return path[ancestor.size()] == '.' || path[ancestor.size()] == '[';
}

}  // namespace ringmaster::api
