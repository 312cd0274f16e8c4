// SPDX-License-Identifier: Apache-2.0

// CHECK(condition[, format, args...]): our own mistakes end the process, in release builds too.
//
// For programmer errors only; whatever input, disk or network can cause is a Result.
#pragma once

#include <fmt/format.h>

#include <string>

namespace ringmaster {

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
