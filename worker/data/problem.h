// SPDX-License-Identifier: Apache-2.0

// Errors about data, which users read. Pure functions.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/result.h"

namespace ringmaster::data {

// Returns an error with the path, what is wrong with it, and how to correct it.
inline Error Problem(Code code, const std::string& path, const std::string& reason,
                     const std::string& remedy) {
  return {code, fmt::format("{}: {}; {}", path, reason, remedy)};
}

}  // namespace ringmaster::data
