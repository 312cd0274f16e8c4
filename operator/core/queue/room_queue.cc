// SPDX-License-Identifier: Apache-2.0

#include "operator/core/queue/room_queue.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ringmaster::core {
namespace {

constexpr size_t kShapesPerPart = 4;
// Each gang that is too large for the nodes costs a look at all of them.
constexpr size_t kMaxTooLarge = 16;

}  // namespace

std::vector<RoomQueue::Need> RoomQueue::Wait::Needs() const {
  std::vector<Need> needs = more;
  needs.insert(needs.begin() + static_cast<ptrdiff_t>(earlier), {shape, pods});
  return needs;
}

RoomQueue::Turn RoomQueue::TurnOf(const std::string& job, const Standing& standing) {
  return {!standing.stuck, -int64_t{standing.priority}, standing.created, job};
}

int64_t RoomQueue::Penalty(Class of, const std::string& space, const Capacity& capacity, double more) const {
  if (shares_.span == 0 || !of.first) return 0;  // a gang that is stuck keeps others from its nodes
  const auto weight = shares_.weights.find(space);
  const double share = capacity.ShareOf(space) + more;
  return static_cast<int64_t>(static_cast<double>(shares_.span) * share /
                              (weight == shares_.weights.end() ? 1 : std::max(weight->second, 1)));
}

bool RoomQueue::Before(const Turn& one, const Turn& other, const Capacity& capacity) const {
  if (ClassOf(one) != ClassOf(other)) return ClassOf(one) < ClassOf(other);
  const int64_t a = one.created + Penalty(ClassOf(one), SpaceOf(one.job), capacity);
  const int64_t b = other.created + Penalty(ClassOf(other), SpaceOf(other.job), capacity);
  return a != b ? a < b : one < other;
}

void RoomQueue::Add(Cursor& cursor, const std::string& space, const Turn* last,
                    const Capacity& capacity) const {
  const auto of = spaces_.find(*cursor.at);
  if (of == spaces_.end()) return;
  const auto turns = of->second.find(space);
  if (turns == of->second.end()) return;
  const auto next = last == nullptr ? turns->second.begin() : turns->second.upper_bound(*last);
  if (next == turns->second.end()) return;
  const auto more = cursor.more.find(space);
  const double added = more == cursor.more.end() ? 0 : more->second;
  cursor.next.emplace(next->created + Penalty(*cursor.at, space, capacity, added), *next);
}

const RoomQueue::Turn* RoomQueue::Next(Cursor& cursor, const Capacity& capacity) const {
  while (true) {
    while (!cursor.next.empty()) {
      const auto found = line_.find(cursor.next.begin()->second);
      if (found != line_.end()) return &found->first;
      Pass(cursor, cursor.next.begin()->second, capacity);  // it has left the queue meanwhile
    }
    const auto of = cursor.at ? spaces_.upper_bound(*cursor.at) : spaces_.begin();
    if (of == spaces_.end()) return nullptr;
    cursor.at = of->first;
    for (const auto& [space, turns] : of->second) Add(cursor, space, nullptr, capacity);
  }
}

void RoomQueue::Pass(Cursor& cursor, Turn turn, const Capacity& capacity) const {
  cursor.next.erase(cursor.next.begin());
  Add(cursor, SpaceOf(turn.job), &turn, capacity);
}

void RoomQueue::Forget(const Turn& turn) {
  line_.erase(turn);
  const auto of = spaces_.find(ClassOf(turn));
  const auto space = of->second.find(SpaceOf(turn.job));
  space->second.erase(turn);
  if (space->second.empty()) of->second.erase(space);
  if (of->second.empty()) spaces_.erase(of);
}

void RoomQueue::Set(const std::string& job, Wait wait, Capacity& capacity) {
  const Turn turn = TurnOf(job, wait.standing);
  const auto known = turns_.find(job);
  if (known != turns_.end() && known->second == turn) {
    Wait& last = line_.at(turn);
    if (last == wait) return;
    const bool may_lead = !last.standing.grows || !wait.standing.grows;
    last = std::move(wait);
    if (may_lead && (head_.empty() || job == head_ || Before(turn, turns_.at(head_), capacity)))
      Refresh(capacity);
    return;
  }
  const bool led = job == head_;
  const bool leads =
      !wait.standing.grows && (head_.empty() || led || Before(turn, turns_.at(head_), capacity));
  if (known != turns_.end()) Forget(Turn(known->second));
  turns_[job] = turn;
  spaces_[ClassOf(turn)][SpaceOf(job)].insert(turn);
  line_.emplace(turn, std::move(wait));
  if (leads || led) Refresh(capacity);
}

void RoomQueue::Remove(const std::string& job, Capacity& capacity) {
  const auto known = turns_.find(job);
  if (known == turns_.end()) return;
  Forget(known->second);
  turns_.erase(known);
  if (job == head_) Refresh(capacity);
}

bool RoomQueue::MayUseClaim(const std::string& job, const Standing& standing,
                            const Capacity& capacity) const {
  if (head_.empty() || job == head_) return true;
  return !standing.grows && Before(TurnOf(job, standing), turns_.at(head_), capacity);
}

void RoomQueue::Refresh(Capacity& capacity) {
  std::set<std::vector<std::pair<const PodShape*, int32_t>>> too_large;
  Cursor cursor;
  while (const Turn* turn = Next(cursor, capacity)) {
    const Wait& wait = line_.at(*turn);
    Pass(cursor, *turn, capacity);
    if (wait.standing.grows) continue;
    const std::vector<Need> needs = wait.Needs();
    std::vector<std::pair<const PodShape*, int32_t>> key;
    for (const Need& need : needs) key.emplace_back(need.shape.get(), need.pods);
    if (wait.peers.empty() && too_large.contains(key)) continue;
    if (capacity.Claim(needs, wait.peers)) {
      head_ = turn->job;
      return;
    }
    too_large.insert(std::move(key));
    if (too_large.size() == kMaxTooLarge) break;
  }
  head_.clear();
  capacity.Disclaim();
}

std::vector<std::string> RoomQueue::Ready(Capacity& capacity, Sweep& sweep) {
  if (!std::exchange(sweep.begun_, true)) Refresh(capacity);
  std::vector<std::string> ready;
  size_t shapes = 0;
  while (true) {
    const Turn* turn = Next(sweep.cursor_, capacity);
    if (turn == nullptr) break;
    const Wait& wait = line_.at(*turn);
    const auto take = [&] {
      if (shares_.span > 0)
        sweep.cursor_.more[SpaceOf(turn->job)] += capacity.ShareOf(*wait.shape, wait.pods);
      ready.push_back(turn->job);
    };
    if (turn->job == head_) {
      const Capacity::WithoutClaim lifted(capacity);
      if (capacity.RoomFor(wait.shape, wait.pods, wait.peers) >= wait.pods) take();
      Pass(sweep.cursor_, *turn, capacity);
      continue;
    }
    auto offer = sweep.offers_.find(wait.shape);
    if (offer == sweep.offers_.end()) {
      if (++shapes > kShapesPerPart) return ready;
      offer = sweep.offers_.emplace(wait.shape, capacity.RoomsOf(wait.shape)).first;
    }
    // The gang gets the domain with the least room. With peers the room is that of their domain only.
    std::vector<int64_t>& rooms = offer->second;
    const auto room = std::lower_bound(rooms.begin(), rooms.end(), int64_t{wait.pods});
    if (room != rooms.end() &&
        (wait.peers.empty() || capacity.RoomFor(wait.shape, wait.pods, wait.peers) >= wait.pods)) {
      *room -= wait.pods;
      std::sort(rooms.begin(), rooms.end());
      take();
    }
    Pass(sweep.cursor_, *turn, capacity);
  }
  sweep.done_ = true;
  return ready;
}

}  // namespace ringmaster::core
