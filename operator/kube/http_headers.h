// SPDX-License-Identifier: Apache-2.0

// Parsers for two response headers. Pure; invalid values are ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace ringmaster::kube {

// Parses Retry-After in seconds, the form that the API server sends; at most an hour.
std::optional<Duration> ParseRetryAfter(std::string_view value);

// Returns the texts of `299 - "one", 299 - "two"`: at most 20, each at most 1 KiB.
std::vector<std::string> ParseWarnings(std::string_view value);

}  // namespace ringmaster::kube
