// SPDX-License-Identifier: Apache-2.0

// Values of two response headers. Pure; whatever cannot be read is left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace ringmaster::kube {

// Retry-After in seconds, as the API server sends it; at most an hour.
std::optional<Duration> ParseRetryAfter(std::string_view value);

// Texts of `299 - "one", 299 - "two"`. At most 20 of at most 1 KiB.
std::vector<std::string> ParseWarnings(std::string_view value);

}  // namespace ringmaster::kube
