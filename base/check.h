// SPDX-License-Identifier: Apache-2.0

// CHECK(condition[, format, args...]) aborts the process when the condition is false, in release builds too.
//
// For programming errors only. A failure that input, disk or network can cause is a Result (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace ringmaster {

// Prints the location, the condition and the message to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& message);

namespace check_internal {
inline std::string Message() { return {}; }
template <class... Args>
std::string Message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace check_internal
}  // namespace ringmaster

#define CHECK(condition, ...)                                                        \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::ringmaster::CheckFailed(__FILE__, __LINE__, #condition,                      \
                                ::ringmaster::check_internal::Message(__VA_ARGS__)); \
  } while (0)
