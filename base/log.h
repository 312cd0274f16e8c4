// SPDX-License-Identifier: Apache-2.0

// Logs on stderr, one line each: key=value pairs followed by a message, or a JSON object with the same
// members. Thread-safe after Init.
//
// The function that handles an error logs it; its callees return the error with context instead. This header
// does not include spdlog, which would cost seconds per translation unit.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ringmaster::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Call once, at the start of main. Every line begins with `name` ("agent pod=gpt-1-0").
// RINGMASTER_LOG=debug|info|warn|error sets the threshold (default info).
void Init(const std::string& name);
// Like Init, but each line is a JSON object: ts, level, logger, msg, and one member for every key=value pair.
void InitJson(const std::string& name);

// Returns the JSON members of a line, each preceded by a comma: the leading key=value words in order, then
// the rest as "msg". The value of `error` may contain spaces and ends at the next key=value word. Pure.
std::string ToJsonMembers(std::string_view line);

void Write(Level level, std::string_view line);
bool Enabled(Level level);

template <class... Args>
void Debug(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kDebug)) Write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kInfo)) Write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  Write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Error(fmt::format_string<Args...> format, Args&&... args) {
  Write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ringmaster::log
