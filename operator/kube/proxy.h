// SPDX-License-Identifier: Apache-2.0

// Chooses the proxy for a server. Pure.
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

// Returns the proxy of `explicit_url` if it is set. Otherwise returns that of HTTPS_PROXY or HTTP_PROXY (or
// their lower-case forms), by the server's scheme, unless the host is this machine or NO_PROXY names it: "*",
// a domain with its subdomains, an address, or a CIDR block, each with or without a port. `env` returns a
// variable's value, or an empty text.
Result<std::optional<Proxy>> ChooseProxy(std::string_view server, const std::string& explicit_url,
                                         const std::function<std::string(const char*)>& env);

}  // namespace ringmaster::kube
