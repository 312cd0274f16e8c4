// SPDX-License-Identifier: Apache-2.0

#include "operator/core/planner/room_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "operator/core/decide/decide.h"

namespace ringmaster::core {

RoomPlanner::Room* RoomPlanner::RoomOf(const std::string& job, const std::string& uid) {
  const auto known = rooms_.find(job);
  return known == rooms_.end() || known->second.uid != uid ? nullptr : &known->second;
}

const RoomPlanner::Room* RoomPlanner::RoomOf(const std::string& job, const std::string& uid) const {
  const auto known = rooms_.find(job);
  return known == rooms_.end() || known->second.uid != uid ? nullptr : &known->second;
}

// ---- jobs

bool RoomPlanner::SetJob(const std::string& job, const std::string& uid, bool may_wait,
                         const Status& status) {
  Room& room = rooms_[job];
  bool freed = false;
  if (room.uid != uid) {
    freed = GiveUp(room);
    room = Room();
    room.uid = uid;
  }
  const Ledger& ledger = status.ledger;
  room.attempt = ledger.attempt;
  room.may_reserve = MayReserve(ledger, ledger.attempt);
  room.may_wait = may_wait;
  room.preemption = ledger.preemption;
  if (ledger.preemption)
    preempted_.insert(job);
  else
    preempted_.erase(job);
  if (!MayReserve(ledger, room.reserved_attempt)) freed = GiveUp(room) || freed;
  if (status.ended()) waiting_.Remove(job, capacity_);
  return freed;
}

bool RoomPlanner::RemoveJob(const std::string& job) {
  waiting_.Remove(job, capacity_);
  preempted_.erase(job);
  const auto known = rooms_.find(job);
  if (known == rooms_.end()) return false;
  const bool freed = GiveUp(known->second);
  rooms_.erase(known);
  return freed;
}

// ---- turns

RoomQueue::Standing RoomPlanner::StandingIn(const Gang& gang, const Observed& observed) {
  RoomQueue::Standing standing = StandingOf(observed);
  standing.priority = gang.priority;
  standing.created = gang.created;
  return standing;
}

std::vector<int32_t> RoomPlanner::Stranded(const Gang& gang, const Observed& observed) const {
  if (gang.bound.empty()) return {};
  return StrandedPods(capacity_, gang.bound, gang.bound_peers, observed.job.topology_required);
}

RoomPlanner::Look RoomPlanner::FindRoom(const std::string& job, const Gang& gang, const Observed& observed,
                                        const RoomQueue::Standing& standing) const {
  const int64_t attempt = observed.status.ledger.attempt;
  Look found;
  std::vector<Capacity::Ask> asks;
  int32_t all = 0;
  for (const Alike& kind : gang.kinds) {
    CHECK(!kind.ranks.empty());
    all += static_cast<int32_t>(kind.ranks.size());
    Capacity::Ask& ask = asks.emplace_back();
    ask.shape = kind.shape;
    for (const int32_t rank : kind.ranks) {
      std::string place = PlaceOf(job, attempt, rank);
      if (capacity_.ReservedFor(place))
        found.fit.reserved.push_back(rank);
      else
        ask.pods.push_back(std::move(place));
    }
  }
  std::sort(found.fit.reserved.begin(), found.fit.reserved.end());
  std::vector<std::string> peers = gang.peers;
  if (!observed.job.TopologyKey().empty())
    for (const int32_t rank : found.fit.reserved) peers.push_back(PlaceOf(job, attempt, rank));
  const auto look = [&] {
    GangRoom room = core::RoomOf(capacity_, asks, peers);
    Look seen{found.fit, room.short_of, std::move(room.peers)};
    seen.fit.missing = std::move(room.missing);
    seen.fit.room = room.room;
    for (size_t i = 0; i <= room.short_of; ++i)
      seen.fit.room += static_cast<int32_t>(gang.kinds[i].ranks.size() - asks[i].pods.size());
    return seen;
  };
  Look seen = look();
  if (seen.fit.room < all) {
    const Capacity::WithoutClaim lifted(capacity_);
    Look unclaimed = look();
    if (waiting_.MayUseClaim(job, standing, capacity_))
      seen = std::move(unclaimed);
    else if (unclaimed.fit.room == all)
      seen.fit.missing = fmt::format("the room is kept for {}, which comes first", waiting_.head());
  }
  CHECK(seen.fit.room <= all);
  return seen;
}

Fit RoomPlanner::FitOf(const std::string& job, const Gang& gang, const Observed& observed) const {
  Fit fit;
  if (!gang.kinds.empty()) fit = FindRoom(job, gang, observed, StandingIn(gang, observed)).fit;
  fit.stranded = Stranded(gang, observed);
  return fit;
}

// A gang that has room and does not take it, and is not looked at again, must not keep the others waiting.
void RoomPlanner::EndOldTurn(Time now) {
  const auto head = rooms_.find(waiting_.head());
  if (head == rooms_.end() || !head->second.room_since || now - *head->second.room_since < kTurnLimit) return;
  waiting_.Remove(head->first, capacity_);
}

RoomQueue::Wait RoomPlanner::WaitOf(const Gang& gang, Look look, int32_t queued, bool has_room) {
  const auto is_reserved = [&](int32_t rank) {
    return std::binary_search(look.fit.reserved.begin(), look.fit.reserved.end(), rank);
  };
  if (has_room) {
    const auto open = std::find_if(gang.kinds.begin(), gang.kinds.end(), [&](const Alike& kind) {
      return !std::all_of(kind.ranks.begin(), kind.ranks.end(), is_reserved);
    });
    CHECK(open != gang.kinds.end());
    look.short_of = static_cast<size_t>(open - gang.kinds.begin());
  }
  RoomQueue::Wait wait;
  int32_t left = queued;
  for (size_t i = 0; i < gang.kinds.size(); ++i) {
    const Alike& kind = gang.kinds[i];
    const int32_t of_kind = std::min(left, static_cast<int32_t>(kind.ranks.size()));
    left -= of_kind;
    const auto reserved =
        static_cast<int32_t>(std::count_if(kind.ranks.begin(), kind.ranks.end(), is_reserved));
    if (i == look.short_of) {
      wait.shape = kind.shape;
      wait.pods = of_kind - reserved;
      wait.earlier = wait.more.size();
    } else if (of_kind > reserved) {
      wait.more.push_back({kind.shape, of_kind - reserved});
    }
  }
  wait.peers = std::move(look.peers);
  return wait;
}

RoomPlanner::Turn RoomPlanner::Update(const std::string& job, const std::string& uid, const Gang& gang,
                                      const Observed& observed, Time now) {
  Turn turn;
  std::vector<int32_t> stranded = Stranded(gang, observed);
  Room* room = RoomOf(job, uid);
  if (room != nullptr) {
    room->looked = true;
    room->wants_room = !gang.kinds.empty();
  }
  if (gang.kinds.empty()) {
    waiting_.Remove(job, capacity_);
    turn.fit.stranded = std::move(stranded);
    return turn;
  }
  const RoomQueue::Standing standing = StandingIn(gang, observed);
  EndOldTurn(now);
  Look look = FindRoom(job, gang, observed, standing);
  look.fit.stranded = std::move(stranded);
  turn.fit = look.fit;
  size_t all = 0;
  for (const Alike& kind : gang.kinds) all += kind.ranks.size();

  const std::string head = waiting_.head();
  // What follows changes the need of this job only, so others need no copy.
  const auto head_wait = head == job ? std::optional(*waiting_.HeadWait()) : std::nullopt;
  const auto queued = QueuedRoom(observed, turn.fit, now);
  const bool has_room = queued && turn.fit.room >= static_cast<int32_t>(all);
  if (room != nullptr) {
    room->standing = standing;
    if (!has_room)
      room->room_since.reset();
    else if (!room->room_since)
      room->room_since = now;
  }
  if (queued && room != nullptr && (!has_room || now - *room->room_since < kTurnLimit)) {
    RoomQueue::Wait wait = WaitOf(gang, std::move(look), *queued, has_room);
    wait.standing = standing;
    wait.preempts = !has_room && MayPreempt(observed) && gang.preempts;
    waiting_.Set(job, std::move(wait), capacity_);
  } else {
    waiting_.Remove(job, capacity_);
  }
  // A new head, or one that needs something else now, may be given room by others.
  const RoomQueue::Wait* next = waiting_.HeadWait();
  turn.plan =
      next != nullptr && next->preempts && (waiting_.head() != head || (head_wait && *next != *head_wait));
  return turn;
}

void RoomPlanner::Leave(const std::string& job, const std::string& uid, bool looked) {
  waiting_.Remove(job, capacity_);
  Room* room = RoomOf(job, uid);
  if (room == nullptr || !looked) return;
  room->looked = true;
  room->wants_room = false;
}

bool RoomPlanner::GiveUp(Room& room) {
  const bool any = !room.reserved.empty();
  for (const std::string& place : room.reserved) capacity_.Unreserve(place);
  room.reserved.clear();
  room.reserved_attempt = 0;
  return any;
}

bool RoomPlanner::GiveUpPlaces(const std::string& job, const std::string& uid) {
  Room* room = RoomOf(job, uid);
  return room != nullptr && GiveUp(*room);
}

// ---- reservations

RoomPlanner::Reservation RoomPlanner::Reserve(const std::string& job, const std::string& uid, int64_t attempt,
                                              const std::vector<Alike>& kinds,
                                              const std::vector<std::string>& peers) {
  Reservation result;
  Room* room = RoomOf(job, uid);
  if (room == nullptr || !room->may_reserve || room->attempt != attempt) return result;
  std::vector<Capacity::Ask> asks;
  std::vector<std::string> wanted;
  for (const Alike& kind : kinds) {
    Capacity::Ask& ask = asks.emplace_back();
    for (const int32_t rank : kind.ranks) ask.pods.push_back(PlaceOf(job, attempt, rank));
    ask.shape = kind.shape;
    ask.rather = kind.rather;
    wanted.insert(wanted.end(), ask.pods.begin(), ask.pods.end());
  }
  for (const std::string& place : room->reserved) {
    if (std::find(wanted.begin(), wanted.end(), place) != wanted.end()) continue;
    capacity_.Unreserve(place);
    result.freed = true;
  }
  {
    std::optional<Capacity::WithoutClaim> lifted;
    if (waiting_.MayUseClaim(job, room->standing, capacity_)) lifted.emplace(capacity_);
    result.reserved = capacity_.Reserve(asks, peers);
  }
  if (result.reserved) waiting_.Remove(job, capacity_);
  waiting_.Refresh(capacity_);
  result.reserved =
      result.reserved && std::all_of(wanted.begin(), wanted.end(), [&](const std::string& place) {
        return capacity_.ReservedFor(place) != nullptr;
      });
  room->reserved_attempt = attempt;
  room->reserved = std::move(wanted);
  if (!result.reserved) result.freed = GiveUp(*room) || result.freed;
  return result;
}

// ---- preemption

bool RoomPlanner::Waits(const Preemption& preemption) const {
  const Room* by = RoomOf(preemption.by, preemption.by_uid);
  if (by == nullptr || !by->may_wait) return false;
  return !by->looked || by->wants_room || !by->reserved.empty();
}

std::optional<Preemption> RoomPlanner::RequestTo(const std::string& job, const std::string& uid,
                                                 int64_t attempt) const {
  const Room* room = RoomOf(job, uid);
  if (room == nullptr || !room->request || room->request_attempt != attempt || !Waits(*room->request))
    return std::nullopt;
  return room->request;
}

std::string RoomPlanner::PreemptsFor(const std::string& job, const std::string& uid) const {
  const Room* room = RoomOf(job, uid);
  return room == nullptr ? std::string() : room->preempts;
}

std::set<std::string> RoomPlanner::JobsToRead(const std::function<std::vector<std::string>()>& all) {
  asker_.clear();
  const RoomQueue::Wait* wait = waiting_.HeadWait();
  if (wait == nullptr || !wait->preempts) {
    holders_.Clear();
    return {};
  }
  asker_ = waiting_.head();
  holders_.Changed(asker_);
  return holders_.TakeChanged(all);
}

PreemptionPlan RoomPlanner::PlanFor(const RoomQueue::Wait& wait) {
  PreemptionPlan plan = PlanPreemption(capacity_, asker_, wait, holders_.holders());
  capacity_.SetLeaving({plan.leaving.begin(), plan.leaving.end()});
  waiting_.Refresh(capacity_);
  return plan;
}

std::set<std::string> RoomPlanner::Plan(std::map<std::string, std::optional<RoomHolder>> read) {
  std::set<std::string> changed;
  for (const std::string& job : preempted_)
    if (!Waits(*rooms_.at(job).preemption)) changed.insert(job);
  for (auto& [job, holder] : read) holders_.Put(job, std::move(holder));
  PreemptionPlan plan;
  // The head may have changed since JobsToRead.
  const RoomQueue::Wait* wait = waiting_.HeadWait();
  if (wait != nullptr && wait->preempts && waiting_.head() == asker_ && rooms_.contains(asker_))
    plan = PlanFor(*wait);
  Request(plan, changed);
  SetPreempts(plan.text, changed);
  return changed;
}

// A plan is a request only: the victim's decision writes it into its ledger, which the next process reads.
void RoomPlanner::Request(const PreemptionPlan& plan, std::set<std::string>& changed) {
  std::set<std::string> requested;
  for (const Victim& victim : plan.victims) {
    const auto known = rooms_.find(victim.job);
    if (known == rooms_.end()) continue;
    Room& room = known->second;
    const Room& by = rooms_.at(asker_);
    Preemption request{asker_, by.uid, by.standing.priority, victim.workers};
    if (room.request != request || room.request_attempt != room.attempt) changed.insert(victim.job);
    room.request = std::move(request);
    room.request_attempt = room.attempt;
    requested.insert(victim.job);
  }
  for (const std::string& job : std::exchange(requested_, requested)) {
    const auto known = rooms_.find(job);
    if (known != rooms_.end() && !requested.contains(job)) known->second.request.reset();
  }
}

void RoomPlanner::SetPreempts(const std::string& text, std::set<std::string>& changed) {
  const auto set = [&](const std::string& job, const std::string& preempts) {
    const auto known = rooms_.find(job);
    if (known == rooms_.end()) return;
    if (known->second.preempts != preempts) changed.insert(job);
    known->second.preempts = preempts;
  };
  if (thanked_ != asker_) set(thanked_, "");
  thanked_ = asker_;
  set(asker_, text);
}

}  // namespace ringmaster::core
