// SPDX-License-Identifier: Apache-2.0

// SimBackend: the room for a gang and the domains of its pods, as the backend for a cluster finds them.
#include <algorithm>
#include <limits>
#include <utility>

#include "operator/core/decide/decide.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::sim {

using control::Key;

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

std::vector<core::RoomPlanner::Alike> SimBackend::ByDomain(const Key& key, const Cached& cached,
                                                           int64_t attempt, const std::vector<int32_t>& ranks,
                                                           const std::vector<std::string>& excluded) const {
  std::map<std::string, core::RoomPlanner::Alike> by_domain;
  for (const int32_t rank : ranks) {
    const auto pod = cached.pods.find(core::PodName(key.name, attempt, rank));
    const std::string domain = pod == cached.pods.end() ? "" : world_.DomainOfPod(pod->second.uid);
    core::RoomPlanner::Alike& kind = by_domain[domain];
    kind.shape = ShapeOf(cached.job->job, excluded, domain);
    kind.ranks.push_back(rank);
  }
  std::vector<core::RoomPlanner::Alike> kinds;
  for (auto it = by_domain.rbegin(); it != by_domain.rend(); ++it) kinds.push_back(std::move(it->second));
  return kinds;
}

std::vector<std::string> SimBackend::PeersOf(const Key& key, const Cached& cached, int64_t attempt) const {
  std::vector<std::string> peers;
  if (cached.job->job.TopologyKey().empty()) return peers;
  for (const auto& [name, pod] : cached.pods)
    if (pod.attempt == attempt && cached.owners.at(pod.uid) == cached.job->job.uid)
      peers.push_back(PodId(key, name));
  return peers;
}

std::vector<core::BoundToDomain> SimBackend::BoundOf(const Key& key, const Cached& cached, int64_t attempt,
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
  return bound;
}

std::string SimBackend::DomainOf(const Key& key, const core::Job& job, const std::string& pod) const {
  const std::string id = PodId(key, pod);
  if (job.TopologyKey().empty() || options_.forgets_domain || !planner_.capacity().ReservedFor(id)) return "";
  return planner_.capacity().DomainOf(id, job.TopologyKey()).value_or("");
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
    const int32_t room = planner_.capacity().RoomFor(there, std::numeric_limits<int32_t>::max());
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

core::RoomPlanner::Gang SimBackend::GangToPlace(const Key& key, const Cached& cached,
                                                const core::Observed& begun) const {
  const int64_t attempt = begun.status.ledger.attempt;
  const std::vector<std::string> excluded = core::ExcludedNodes(begun.status.ledger, scheduler_.now());
  core::RoomPlanner::Gang gang;
  gang.kinds = ByDomain(key, cached, attempt, core::WaitingRanks(begun), excluded);
  gang.peers = gang.bound_peers = PeersOf(key, cached, attempt);
  gang.bound = BoundOf(key, cached, attempt, excluded);
  gang.priority = PriorityOf(key);
  gang.created = options_.forgets_ages && term_ > 1 ? 0 : AgeOf(key);
  return gang;
}

void SimBackend::LearnJob(const Key& key, const Cached& cached) {
  if (cached.job)
    planner_.SetJob(key.ToString(), cached.job->job.uid,
                    core::MayWaitForVictims(cached.job->job, cached.job->status), cached.job->status);
  else
    planner_.RemoveJob(key.ToString());
}

Result<control::Revision> SimBackend::Reserve(const control::Write& write, const core::ReserveRoom& action) {
  const Cached& cached = cache_[write.key];
  if (!cached.job || cached.job->job.uid != write.job_uid) return Error{Code::kNotFound, "no job"};
  if (world_.nodes().empty()) return control::Revision{0};
  const std::vector<core::RoomPlanner::Alike> kinds =
      ByDomain(write.key, cached, action.attempt, action.ranks, action.excluded_nodes);
  const std::vector<std::string> peers = PeersOf(write.key, cached, action.attempt);
  std::vector<std::string> wanted;
  for (const int32_t rank : action.ranks)
    wanted.push_back(PodId(write.key, core::PodName(write.key.name, action.attempt, rank)));
  Placing placing;
  placing.standing = cached.standing;
  placing.head = planner_.queue().head();
  {
    std::optional<core::Capacity::WithoutClaim> lifted;
    if (planner_.queue().MayUseClaim(write.key.ToString(), cached.standing, planner_.capacity()))
      lifted.emplace(planner_.capacity());
    placing.rooms = RoomsOf(cached.job->job, action.excluded_nodes);
  }
  {
    const core::Capacity::WithoutClaim all_claims(planner_.capacity());
    placing.free = RoomByNode();
  }
  const bool all =
      peers.empty() && kinds.size() == 1 && std::none_of(wanted.begin(), wanted.end(), [&](const auto& id) {
        return planner_.capacity().ReservedFor(id) != nullptr;
      });
  if (!planner_.Reserve(write.key.ToString(), write.job_uid, action.attempt, kinds, peers).reserved)
    return Error{Code::kConflict, "no room is left"};
  if (all && options_.on_reserved) {
    const core::Capacity::WithoutClaim all_claims(planner_.capacity());
    placing.left = RoomByNode();
    for (const std::string& id : wanted)
      placing.places[planner_.capacity().DomainOf(id, kRack).value_or("")] += 1;
    options_.on_reserved(write.key, placing);
  }
  return control::Revision{0};
}

}  // namespace ringmaster::sim
