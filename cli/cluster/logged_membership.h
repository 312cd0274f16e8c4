// SPDX-License-Identifier: Apache-2.0

// Finds in a worker's log the membership it joined last. A trainer logs each membership as
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

using LoggedMemberships = std::map<std::string, LoggedMembership>;  // pod name -> membership

// Returns the last membership in the log, or nullopt when the log has none.
std::optional<LoggedMembership> LastLoggedMembership(std::string_view log);

}  // namespace ringmaster::cli
