// SPDX-License-Identifier: Apache-2.0

// Reads environment variables. Thread-safe: main sets some before the first thread starts, and no code sets
// any later.
#pragma once

#include <cstdlib>
#include <string>

namespace ringmaster::kube {

// Returns an empty text when the variable is not set.
inline std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace ringmaster::kube
