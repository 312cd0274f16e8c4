// SPDX-License-Identifier: Apache-2.0

// Variables of the process environment. main sets some before the first thread starts, nobody later: any
// thread may read.
#pragma once

#include <cstdlib>
#include <string>

namespace ringmaster::kube {

// "" when it is not set.
inline std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace ringmaster::kube
