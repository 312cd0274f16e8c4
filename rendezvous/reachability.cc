// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/reachability.h"

#include <algorithm>

namespace ringmaster::rendezvous {

void Reachability::Add(size_t rank, const std::vector<int32_t>& unreachable) {
  if (rank >= world_) return;
  if (!reported_[rank]) {
    reported_[rank] = true;
    ++reports_;
  }
  for (const int32_t peer : unreachable) {
    const auto other = static_cast<size_t>(peer);
    if (peer < 0 || other >= world_ || other == rank) continue;
    apart_.resize(world_ * world_);
    apart_[rank * world_ + other] = apart_[other * world_ + rank] = true;
  }
}

std::optional<std::vector<int32_t>> Reachability::OddRanks() const {
  std::vector<int32_t> odd;
  if (apart_.empty()) return odd;
  std::vector<size_t> unreachable(world_);  // of each rank that is not odd, among those
  for (size_t a = 0; a < world_; ++a)
    for (size_t b = 0; b < world_; ++b)
      if (apart_[a * world_ + b]) ++unreachable[a];
  while (true) {
    size_t worst = 0;
    for (size_t rank = 1; rank < world_; ++rank)
      if (unreachable[rank] >= unreachable[worst]) worst = rank;
    if (unreachable[worst] == 0) break;
    odd.push_back(static_cast<int32_t>(worst));
    if (2 * (world_ - odd.size()) <= world_) return std::nullopt;
    for (size_t rank = 0; rank < world_; ++rank)
      if (apart_[worst * world_ + rank] && unreachable[rank] > 0) --unreachable[rank];
    unreachable[worst] = 0;
  }
  std::sort(odd.begin(), odd.end());
  return odd;
}

}  // namespace ringmaster::rendezvous
