// SPDX-License-Identifier: Apache-2.0

// Parses a line of a watch: {"type": "ADDED", "object": {...}}. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/watch/watcher.h"

namespace ringmaster::kube {

struct WatchLine {
  LineKind kind = LineKind::kBookmark;
  Json object;
  std::string resource_version;  // of the object
  int error_code = 0;            // kError: HTTP status and text of the Status object
  std::string error_message;
};

// Errors: kInvalid. An event may have been lost with the line.
Result<WatchLine> ParseWatchLine(std::string_view text);

}  // namespace ringmaster::kube
