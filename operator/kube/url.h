// SPDX-License-Identifier: Apache-2.0

// Parses the http or https URL of a server. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::kube {

struct Url {
  std::string scheme;  // http | https
  std::string user;    // percent-decoded
  std::string password;
  std::string host;  // IPv6 addresses without brackets
  uint16_t port = 0;
  std::string path;  // without a trailing slash: empty, or "/k8s/clusters/c-1"
};

// kInvalid names the error without the password. A query or fragment is an error.
Result<Url> ParseUrl(std::string_view text);

}  // namespace ringmaster::kube
