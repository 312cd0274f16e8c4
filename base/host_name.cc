// SPDX-License-Identifier: Apache-2.0

#include "base/host_name.h"

#include <unistd.h>

#include <array>

namespace ringmaster {

std::string HostName() {
  std::array<char, 256> name{};  // the last byte stays zero: a name that is cut off has none
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace ringmaster
