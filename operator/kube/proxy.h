// SPDX-License-Identifier: Apache-2.0

// Which proxy, if any, stands between us and a server. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::kube {

struct Proxy {
  std::string address;  // http://host:port
  std::string user;
  std::string password;  // never logged
};

// An explicit URL counts always; else HTTPS_PROXY or HTTP_PROXY by the server's scheme (or in small letters),
// unless the host is this machine or NO_PROXY names it: "*", a domain with its subdomains, an address, a CIDR
// block, each with or without a port. `env` gives a variable's value, or empty.
Result<std::optional<Proxy>> ChooseProxy(std::string_view server, const std::string& explicit_url,
                                         const std::function<std::string(const char*)>& env);

}  // namespace ringmaster::kube
