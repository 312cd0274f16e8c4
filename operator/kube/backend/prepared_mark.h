// SPDX-License-Identifier: Apache-2.0

// How it is known, also after a restart, that everything beside the pods of an attempt is there and as it
// should be: each object carries what it was made for. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/model.h"
#include "operator/kube/backend/host_ports.h"

namespace ringmaster::kube {

struct PreparedMark {
  core::PrepareGang action;
  int64_t objects = 0;     // how many there are of them
  uint64_t authority = 0;  // of the coordinator, as workers were told: a hash
  PortRange ports;         // hostNetwork
  bool operator==(const PreparedMark&) const = default;
};

// 0: there is none.
uint64_t AuthorityHash(const std::string& pem);

// "attempt=3,size=8,min=4,objects=2,authority=9157,ports=20000+64"
std::string MarkText(const PreparedMark& mark);
std::optional<PreparedMark> ParseMark(std::string_view text);

// What all objects are there for, by the marks of those that exist. Objects of older attempts may be left
// over; those that tell of another authority do not count. nullopt: something is missing.
std::optional<core::PrepareGang> PreparedAction(const std::vector<std::string>& marks, uint64_t authority);

}  // namespace ringmaster::kube
