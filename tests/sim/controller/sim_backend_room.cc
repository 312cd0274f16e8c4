// SPDX-License-Identifier: Apache-2.0

// SimBackend: the room for a gang and the domains of its pods, as the backend for a cluster finds them.
#include <algorithm>
#include <limits>
#include <utility>

#include "operator/core/capacity/gang_room.h"
#include "operator/core/decide/decide.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::sim {

using control::Key;

std::string SimBackend::PodId(const Key& key, const std::string& name) { return key.ToString() + "/" + name; }

core::Capacity::Shape SimBackend::ShapeOf(const core::Job& job, const std::vector<std::string>& excluded,
                                          const std::string& domain) const {
  const std::string& preferred = options_.scatters ? std::string() : job.topology_preferred;
  core::Capacity::Shape& known = shapes_[{job.topology_required, preferred, domain, excluded}];
  if (known) return known;
  core::PodShape shape;
  shape.requests[kPlace] = 1;
  shape.topology_key = job.topology_required;
  shape.preferred_key = preferred;
  if (!domain.empty()) shape.node_selector[job.TopologyKey()] = domain;
  if (!excluded.empty()) shape.affinity = {{{"metadata.name", core::Requirement::Op::kNotIn, excluded}}};
  return known = std::make_shared<const core::PodShape>(std::move(shape));
}

std::vector<core::Capacity::Ask> SimBackend::AsksOf(const Key& key, const Cached& cached, int64_t attempt,
                                                    const std::vector<int32_t>& ranks,
                                                    const std::vector<std::string>& excluded) const {
  std::map<std::string, core::Capacity::Ask> by_domain;
  for (const int32_t rank : ranks) {
    const std::string name = core::PodName(key.name, attempt, rank);
    const auto pod = cached.pods.find(name);
    const std::string domain = pod == cached.pods.end() ? "" : world_.DomainOfPod(pod->second.uid);
    core::Capacity::Ask& ask = by_domain[domain];
    ask.shape = ShapeOf(cached.job->job, excluded, domain);
    ask.pods.push_back(PodId(key, name));
  }
  std::vector<core::Capacity::Ask> gang;
  for (auto it = by_domain.rbegin(); it != by_domain.rend(); ++it) gang.push_back(std::move(it->second));
  if (gang.empty()) gang.push_back({{}, ShapeOf(cached.job->job, excluded)});
  return gang;
}

std::vector<std::string> SimBackend::PeersOf(const Key& key, const Cached& cached, int64_t attempt) const {
  std::vector<std::string> peers;
  if (cached.job->job.TopologyKey().empty() || options_.forgets_peers) return peers;
  for (const auto& [name, pod] : cached.pods)
    if (pod.attempt == attempt && cached.owners.at(pod.uid) == cached.job->job.uid)
      peers.push_back(PodId(key, name));
  return peers;
}

std::vector<int32_t> SimBackend::StrandedIn(const Key& key, const Cached& cached, int64_t attempt,
                                            const std::vector<std::string>& excluded) const {
  const core::Job& job = cached.job->job;
  std::vector<core::BoundToDomain> bound;
  for (const auto& [name, pod] : cached.pods) {
    const std::string domain = world_.DomainOfPod(pod.uid);
    if (pod.attempt != attempt || cached.owners.at(pod.uid) != job.uid || domain.empty() || pod.bound() ||
        !pod.alive() || pod.deleting())
      continue;
    bound.push_back({pod.rank, PodId(key, name), ShapeOf(job, excluded, domain), ShapeOf(job, excluded),
                     pod.gated, pod.waiting_reason == core::kUnschedulable});
  }
  return core::StrandedPods(capacity_, bound, PeersOf(key, cached, attempt), job.topology_required);
}

std::string SimBackend::DomainOf(const Key& key, const core::Job& job, const std::string& pod) const {
  const std::string id = PodId(key, pod);
  if (job.TopologyKey().empty() || options_.forgets_domain || !capacity_.ReservedFor(id)) return "";
  return capacity_.DomainOf(id, job.TopologyKey()).value_or("");
}

std::map<std::string, int32_t> SimBackend::RoomByNode() {
  std::map<std::string, int32_t> rooms;
  for (const auto& [name, node] : world_.nodes()) {
    core::Capacity::Shape& there = shapes_[{"", "", "", {"only", name}}];
    if (!there) {
      core::PodShape shape = *ShapeOf({}, {});
      shape.affinity = {{{"metadata.name", core::Requirement::Op::kIn, {name}}}};
      there = std::make_shared<const core::PodShape>(std::move(shape));
    }
    const int32_t room = capacity_.RoomFor(there, std::numeric_limits<int32_t>::max());
    if (room > 0) rooms[name] = room;
  }
  return rooms;
}

std::map<std::string, int32_t> SimBackend::RoomsOf(const core::Job& job,
                                                   const std::vector<std::string>& excluded) {
  std::map<std::string, int32_t> rooms;
  if (job.topology_preferred.empty()) return rooms;
  for (const auto& [name, room] : RoomByNode())
    if (std::find(excluded.begin(), excluded.end(), name) == excluded.end())
      rooms[world_.nodes().at(name).domain] += room;
  return rooms;
}

bool SimBackend::MayUseClaim(const Key& key, const Cached& cached) const {
  return options_.takes_claims || waiting_.MayUseClaim(key.ToString(), cached.standing, capacity_);
}

core::Fit SimBackend::FitOf(const Key& key, const Cached& cached, const core::Observed& o) const {
  const Time now = scheduler_.now();
  if (core::NotBegun(o.status.ledger)) return FitOf(key, cached, core::Begun(o, now));
  const std::vector<int32_t> ranks = core::WaitingRanks(o);
  const int64_t attempt = o.status.ledger.attempt;
  cached.looked = true;
  cached.wants_room = !ranks.empty();
  const std::vector<std::string> excluded = core::ExcludedNodes(o.status.ledger, now);
  core::Fit fit;
  fit.stranded = StrandedIn(key, cached, attempt, excluded);
  std::vector<int32_t> open;
  std::vector<std::string> peers = PeersOf(key, cached, attempt);
  for (const int32_t rank : ranks) {
    const std::string id = PodId(key, core::PodName(o.job.name, attempt, rank));
    if (capacity_.ReservedFor(id)) {
      fit.reserved.push_back(rank);
      if (!options_.forgets_peers) peers.push_back(id);
    } else {
      open.push_back(rank);
    }
  }
  std::sort(fit.reserved.begin(), fit.reserved.end());
  if (options_.forgets_reservations && cached.reserved_attempt == attempt) fit.reserved = cached.reserved;
  const auto reserved = static_cast<int32_t>(fit.reserved.size());
  cached.standing = core::StandingOf(o);
  cached.standing.priority = options_.ignores_turns ? 0 : PriorityOf(key);
  const bool knows_age = !options_.ignores_turns && !(options_.forgets_ages && term_ > 1);
  cached.standing.created = knows_age ? AgeOf(key) : 0;
  const std::vector<core::Capacity::Ask> gang = AsksOf(key, cached, attempt, open, excluded);
  core::GangRoom room;
  {
    std::optional<core::Capacity::WithoutClaim> lifted;
    if (MayUseClaim(key, cached)) lifted.emplace(capacity_);
    room = core::RoomOf(capacity_, gang, peers);
  }
  fit.room = reserved + room.room;
  fit.missing = room.missing;
  const auto queued = core::QueuedRoom(o, fit, now);
  const bool has_room = queued && fit.room >= static_cast<int32_t>(ranks.size());
  if (!has_room)
    cached.room_since.reset();
  else if (!cached.room_since)
    cached.room_since = now;
  if (queued && (!has_room || now - *cached.room_since < core::kTurnLimit)) {
    core::RoomQueue::Wait wait;
    int32_t left = *queued - reserved;
    if (has_room) room.short_of = 0;  // each ask has pods
    for (size_t i = 0; i < gang.size(); ++i) {
      const int32_t pods = std::min(left, static_cast<int32_t>(gang[i].pods.size()));
      left -= pods;
      if (i == room.short_of) {
        wait.shape = gang[i].shape;
        wait.pods = pods;
        wait.earlier = wait.more.size();
      } else if (pods > 0) {
        wait.more.push_back({gang[i].shape, pods});
      }
    }
    wait.peers = room.peers;
    wait.standing = cached.standing;
    wait.preempts = !has_room && core::MayPreempt(o);
    waiting_.Set(key.ToString(), std::move(wait), capacity_);
  } else {
    waiting_.Remove(key.ToString(), capacity_);
  }
  return fit;
}

void SimBackend::CheckReservation(const Key& key, Cached& cached) {
  if (cached.job && cached.job->job.uid == cached.reserved_uid &&
      core::MayReserve(cached.job->status.ledger, cached.reserved_attempt))
    return;
  GiveUpPlaces(key, cached);
}

void SimBackend::GiveUpPlaces(const Key& key, const Cached& cached) const {
  if (!options_.keeps_reservations)
    for (const int32_t rank : cached.reserved)
      capacity_.Unreserve(PodId(key, core::PodName(key.name, cached.reserved_attempt, rank)));
  cached.reserved.clear();
  cached.reserved_attempt = 0;
}

}  // namespace ringmaster::sim
