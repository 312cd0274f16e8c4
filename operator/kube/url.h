// SPDX-License-Identifier: Apache-2.0

// The parts of an http or https URL that names a server. Pure.
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
  std::string host;  // an IPv6 address stands without brackets
  uint16_t port = 0;
  std::string path;  // without an ending slash: empty, or "/k8s/clusters/c-1"
};

// kInvalid says what is wrong, without the password. A query or fragment is refused.
Result<Url> ParseUrl(std::string_view text);

}  // namespace ringmaster::kube
