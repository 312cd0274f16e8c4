// SPDX-License-Identifier: Apache-2.0

#include "operator/core/room_queue.h"

#include <limits>
#include <set>
#include <utility>

namespace ringmaster::core {
namespace {

constexpr size_t kShapesPerPart = 4;
// Each gang that is too large for the nodes costs a look at all of them.
constexpr size_t kMaxTooLarge = 16;

}  // namespace

RoomQueue::Turn RoomQueue::TurnOf(const std::string& job, const Standing& standing) {
  return {!standing.stuck, -int64_t{standing.priority}, standing.created, job};
}

void RoomQueue::Set(const std::string& job, Wait wait, Capacity& capacity) {
  const Turn turn = TurnOf(job, wait.standing);
  const auto known = turns_.find(job);
  if (known != turns_.end() && known->second == turn) {
    Wait& last = line_.at(turn);
    if (last == wait) return;
    const bool may_lead = !last.standing.grows || !wait.standing.grows;
    last = std::move(wait);
    if (may_lead && (head_.empty() || turn <= turns_.at(head_))) Refresh(capacity);
    return;
  }
  if (known != turns_.end()) line_.erase(known->second);
  const bool leads = !wait.standing.grows && (head_.empty() || job == head_ || turn < turns_.at(head_));
  turns_[job] = turn;
  line_.emplace(turn, std::move(wait));
  if (leads || job == head_) Refresh(capacity);
}

void RoomQueue::Remove(const std::string& job, Capacity& capacity) {
  const auto known = turns_.find(job);
  if (known == turns_.end()) return;
  line_.erase(known->second);
  turns_.erase(known);
  if (job == head_) Refresh(capacity);
}

bool RoomQueue::MayUseClaim(const std::string& job, const Standing& standing) const {
  if (head_.empty() || job == head_) return true;
  return !standing.grows && TurnOf(job, standing) < turns_.at(head_);
}

void RoomQueue::Refresh(Capacity& capacity) {
  std::set<std::pair<const PodShape*, int32_t>> too_large;
  for (const auto& [turn, wait] : line_) {
    if (wait.standing.grows) continue;
    const std::pair<const PodShape*, int32_t> key = {wait.shape.get(), wait.pods};
    if (wait.peers.empty() && too_large.contains(key)) continue;
    if (capacity.Claim(wait.shape, wait.pods, wait.peers)) {
      head_ = turn.job;
      return;
    }
    too_large.insert(key);
    if (too_large.size() == kMaxTooLarge) break;
  }
  head_.clear();
  capacity.Disclaim();
}

std::vector<std::string> RoomQueue::Ready(Capacity& capacity, Sweep& sweep) {
  if (!sweep.last_) Refresh(capacity);
  std::vector<std::string> ready;
  size_t shapes = 0;
  for (auto it = sweep.last_ ? line_.upper_bound(*sweep.last_) : line_.begin(); it != line_.end(); ++it) {
    const auto& [turn, wait] = *it;
    if (turn.job == head_) {
      const Capacity::WithoutClaim lifted(capacity);
      if (capacity.RoomFor(wait.shape, wait.pods, wait.peers) >= wait.pods) ready.push_back(turn.job);
      sweep.last_ = turn;
      continue;
    }
    auto offer = sweep.offers_.find(wait.shape);
    if (offer == sweep.offers_.end()) {
      if (++shapes > kShapesPerPart) return ready;
      const int32_t room = capacity.RoomFor(wait.shape, std::numeric_limits<int32_t>::max());
      offer = sweep.offers_.emplace(wait.shape, Sweep::Offer{room, 0}).first;
    }
    sweep.last_ = turn;
    if (offer->second.room - offer->second.taken < wait.pods) continue;
    // With peers the room is that of their domain only.
    if (!wait.peers.empty() && capacity.RoomFor(wait.shape, wait.pods, wait.peers) < wait.pods) continue;
    offer->second.taken += wait.pods;
    ready.push_back(turn.job);
  }
  sweep.done_ = true;
  return ready;
}

}  // namespace ringmaster::core
