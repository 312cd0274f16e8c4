// SPDX-License-Identifier: Apache-2.0

// The room for one gang: what backends ask Capacity about pods of several shapes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/core/capacity/capacity.h"

namespace ringmaster::core {

struct GangRoom {
  int32_t room = 0;                // for this many pods: of the asks before `short_of` for all
  std::string missing;             // empty: there is room for all
  size_t short_of = 0;             // the first ask without room for all; the last one if there is room
  std::vector<std::string> peers;  // the gang's other pods, as that ask finds them
};

// Each ask finds the room that the earlier ones leave. REQUIRES: `gang` is not empty, and its pods have no
// places.
GangRoom RoomOf(Capacity& capacity, const std::vector<Capacity::Ask>& gang, std::vector<std::string> peers);

// A pod that exists, has no node, and may use only one domain.
struct BoundToDomain {
  int32_t rank = 0;
  std::string pod;
  Capacity::Shape shape;
  Capacity::Shape free;  // the shape without the domain
  bool gated = false;
  bool refused = false;  // the scheduler finds no node for it
};

// Returns the ranks of those without room in their domain that would find room without it. `peers`: all pods
// of the gang. With a required topology all of them must be in one domain. Sorted.
std::vector<int32_t> StrandedPods(Capacity& capacity, const std::vector<BoundToDomain>& pods,
                                  const std::vector<std::string>& peers, const std::string& required);

}  // namespace ringmaster::core
