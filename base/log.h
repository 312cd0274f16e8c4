// SPDX-License-Identifier: Apache-2.0

// One-line key=value logs on stderr, or JSON objects with the same members. Thread-safe. The function that
// decides an error logs it; callers add context. The backing library stays out of this header: it costs
// seconds per translation unit.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ringmaster::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Once, at the start of main. `name` stands at the head of every line ("agent pod=gpt-1-0").
// RINGMASTER_LOG=debug|info|warn|error sets the threshold (default info).
void Init(const std::string& name);
// The same with a JSON object per line: ts, level, logger, msg, and every key=value of the line as a member
// of its own.
void InitJson(const std::string& name);

// For InitJson; pure. The members of a line, each with a comma before it: the words `key=value` at its head,
// in order, and the rest as "msg". The value of `error` may hold spaces: it reaches to the next such word.
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
