// SPDX-License-Identifier: Apache-2.0

// Reads the log of a worker in the output folder of a run. Lines of the agent and the trainer begin with the
// local time (base/log.h); what a user's program prints has no time. The functions keep no state.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace ringmaster::cli {

// Returns the last `bytes` bytes of the file, or all.
Result<std::string> EndOfLog(const std::string& path, size_t bytes);

// Returns the last `bytes` bytes up to and including the lines of `time`, which is RFC 3339 in UTC with
// milliseconds, like the times of events. A line without a time belongs to the nearest line before it that
// has one. Reads only some blocks of a long file, unless few of its lines have a time. Errors: kInvalid when
// `time` has another form.
Result<std::string> LogUntil(const std::string& path, const std::string& time, size_t bytes);

}  // namespace ringmaster::cli
