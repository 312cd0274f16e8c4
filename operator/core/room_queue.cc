// SPDX-License-Identifier: Apache-2.0

#include "operator/core/room_queue.h"

#include <limits>
#include <utility>

namespace ringmaster::core {
namespace {

constexpr size_t kShapesPerPart = 4;

}  // namespace

void RoomQueue::Set(const std::string& job, Wait wait) {
  const auto [it, added] = turns_.try_emplace(job, next_);
  if (added) next_ += 1;
  entries_[it->second] = {job, std::move(wait)};
}

void RoomQueue::Remove(const std::string& job) {
  const auto it = turns_.find(job);
  if (it == turns_.end()) return;
  entries_.erase(it->second);
  turns_.erase(it);
}

std::vector<std::string> RoomQueue::Ready(Capacity& capacity, Sweep& sweep) const {
  std::vector<std::string> ready;
  size_t shapes = 0;
  for (auto it = entries_.lower_bound(sweep.next); it != entries_.end(); ++it) {
    const Wait& wait = it->second.wait;
    auto offer = sweep.offers.find(wait.shape);
    if (offer == sweep.offers.end()) {
      if (++shapes > kShapesPerPart) return ready;
      const int32_t room = capacity.RoomFor(wait.shape, std::numeric_limits<int32_t>::max());
      offer = sweep.offers.emplace(wait.shape, Sweep::Offer{room, 0}).first;
    }
    sweep.next = it->first + 1;
    if (offer->second.room - offer->second.taken < wait.pods) continue;
    // With peers the room is that of their domain only.
    if (!wait.peers.empty() && capacity.RoomFor(wait.shape, wait.pods, wait.peers) < wait.pods) continue;
    offer->second.taken += wait.pods;
    ready.push_back(it->second.job);
  }
  sweep.done = true;
  return ready;
}

}  // namespace ringmaster::core
