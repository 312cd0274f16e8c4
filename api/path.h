// SPDX-License-Identifier: Apache-2.0

// Paths into a manifest: spec.restart.rules[0].action, metadata.labels[example.com/team]. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::api {

struct PathSegment {
  std::string text;
  bool bracketed = false;  // [text]: an index of a list, or a key with dots of a map
};

// Errors: kInvalid for an empty path or segment, an unclosed bracket, and more than 64 segments.
Result<std::vector<PathSegment>> SplitPath(std::string_view path);

// The position of a tree walk. Points to its parent, so it must not outlive the parent's stack frame.
struct Path {
  const Path* parent = nullptr;
  std::string_view name;  // empty for items of lists and for the root
  int index = -1;

  Path Child(std::string_view field) const { return {this, field, -1}; }
  Path Item(size_t i) const { return {this, {}, static_cast<int>(i)}; }
  std::string ToString() const;
};

// Whether `path` equals `ancestor` or is below it.
bool IsUnder(std::string_view path, std::string_view ancestor);

}  // namespace ringmaster::api
