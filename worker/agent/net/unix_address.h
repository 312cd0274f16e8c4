// SPDX-License-Identifier: Apache-2.0

// The address of a Unix socket.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "base/result.h"

namespace ringmaster::agent {

// Errors: kInvalid if the path is empty or too long for an address.
inline Result<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error{Code::kInvalid, "\"" + path + "\": empty, or too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace ringmaster::agent
