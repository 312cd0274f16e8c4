// SPDX-License-Identifier: Apache-2.0

// The network interface of this machine that has an address. Thread-safe.
#pragma once

#include <string>

namespace ringmaster::agent {

// Returns its name; empty: no interface has this IPv4 address.
std::string InterfaceOf(const std::string& address);

}  // namespace ringmaster::agent
