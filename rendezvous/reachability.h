// SPDX-License-Identifier: Apache-2.0

// Which members of a generation cannot exchange data with the others. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ringmaster::rendezvous {

class Reachability {
 public:
  Reachability() = default;
  explicit Reachability(size_t world) : world_(world), reported_(world) {}

  // `rank` found no transport to the ranks in `unreachable`; the way back has none either. An empty list says
  // that it could not continue for another reason. Ranks outside the world are ignored.
  void Add(size_t rank, const std::vector<int32_t>& unreachable);

  bool all_reported() const { return reports_ == world_; }

  // Returns the ranks without which all others reach each other, ascending: those with the most unreachable
  // peers first, of equals the highest. nullopt when those others are not more than half: no rank is the odd
  // one then. O(world^2) time; a bit per pair of ranks once there is an unreachable one.
  std::optional<std::vector<int32_t>> OddRanks() const;

 private:
  size_t world_ = 0;
  size_t reports_ = 0;
  std::vector<bool> reported_;
  std::vector<bool> apart_;  // by a * world_ + b, both ways; empty: no pair is unreachable
};

}  // namespace ringmaster::rendezvous
