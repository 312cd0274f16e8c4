// SPDX-License-Identifier: Apache-2.0

// The annotation by which the operator knows, also after a restart, that all objects of an attempt other than
// its pods exist and are up to date: each object carries what it was created for. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/model.h"
#include "operator/kube/backend/host_ports.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {

struct PreparedMark {
  core::PrepareGang action;
  std::optional<wiring::Gang> gang;  // the attempt's provider; unset in marks of older versions
  int64_t objects = 0;               // the number of objects of the attempt
  uint64_t authority = 0;            // hash of the coordinator's authorities that workers got
  PortRange ports;                   // for hostNetwork
  bool operator==(const PreparedMark&) const = default;
};

// Returns 0 for an empty text.
uint64_t AuthorityHash(const std::string& pem);

// Returns for example "attempt=3,size=8,min=4,gang=gate,objects=2,authority=9157,ports=20000+64"
std::string MarkText(const PreparedMark& mark);
std::optional<PreparedMark> ParseMark(std::string_view text);

// Returns the newest action for which all objects exist, given the marks of the existing objects; nullopt: an
// object is missing. Objects of older attempts may still exist. Marks with another authority do not count.
std::optional<core::PrepareGang> PreparedAction(const std::vector<std::string>& marks, uint64_t authority);

// Returns the provider of this attempt, which stays the same however the cluster or the operator's flags
// change; nullopt: none of its objects exists.
std::optional<wiring::Gang> PinnedGang(const std::vector<std::string>& marks, int64_t attempt);

}  // namespace ringmaster::kube
