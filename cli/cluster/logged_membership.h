// SPDX-License-Identifier: Apache-2.0

// Where a rank stands in its gang, from what it says in its own log when a membership is formed:
// "generation=4294967299 rank=1 world=4 transport=ucx:tcp". Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ringmaster::cli {

struct LoggedMembership {
  int64_t generation = 0;
  std::string transport;  // rendezvous/transport_name.h
};

using LoggedMemberships = std::map<std::string, LoggedMembership>;  // by pod

// Of the newest membership that the log tells of; nullopt: of none.
std::optional<LoggedMembership> LastLoggedMembership(std::string_view log);

}  // namespace ringmaster::cli
