// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the free capacity, and the places that are reserved for pods before they exist.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/wiring/pod_shape.h"

namespace ringmaster::kube {
namespace {

// The name of a pod in the capacity.
std::string PlaceName(const JobRecord& job, int64_t attempt, int32_t rank) {
  return job.key.namespace_ + "/" + core::PodName(job.key.name, attempt, rank);
}

}  // namespace

core::Capacity::Shape KubeBackend::RenderedShape(const JobRecord& job,
                                                 const std::vector<std::string>& excluded_nodes) const {
  const std::string inputs =
      fmt::format("{}/{}", job.spec->job.spec_generation, fmt::join(excluded_nodes, ","));
  {
    MutexLock lock(mutex_);
    const JobState& state = StateOf(job);
    if (state.shape && state.shape_inputs == inputs) return state.shape;
  }
  wiring::Context context = ContextOf(job);
  context.gang = wiring::Gang::kGate;
  context.size = job.spec->job.Target();
  context.excluded_nodes = excluded_nodes;
  core::Capacity::Shape shape =
      interners_.shapes.Intern(wiring::ShapeOf(wiring::PodOf(job.ToApi(), job.uid, 0, context)));
  MutexLock lock(mutex_);
  JobState& state = StateOf(job);
  state.shape = shape;
  state.shape_inputs = inputs;
  return shape;
}

core::Capacity::Shape KubeBackend::ShapeOf(const JobRecord& job, int64_t attempt,
                                           const std::vector<std::string>& excluded_nodes) const {
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid == job.uid && own.pod.attempt == attempt && own.pod.gated && !own.pod.deleting() &&
        !record->ended && own.shape)
      return own.shape;
  }
  return RenderedShape(job, excluded_nodes);
}

std::vector<std::string> KubeBackend::PeersOf(const JobRecord& job, int64_t attempt,
                                              const core::PodShape& shape) const {
  std::vector<std::string> peers;
  if (shape.topology_key.empty()) return peers;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid == job.uid && own.pod.attempt == attempt)
      peers.push_back(PlaceName(job, attempt, own.pod.rank));
  }
  return peers;
}

core::Fit KubeBackend::FitOf(const JobRecord& job, const core::Observed& observed) const {
  const Time now = Now();
  if (core::NotBegun(observed.status.ledger)) return FitOf(job, core::Begun(observed, now));
  const core::Ledger& ledger = observed.status.ledger;
  const std::vector<int32_t> ranks = core::WaitingRanks(observed);
  const std::string name = job.key.ToString();
  if (ranks.empty()) {
    MutexLock lock(mutex_);
    waiting_.Remove(name, capacity_);
    return {};
  }
  const core::Capacity::Shape shape = ShapeOf(job, ledger.attempt, core::ExcludedNodes(ledger, now));
  std::vector<std::string> peers = PeersOf(job, ledger.attempt, *shape);
  MutexLock lock(mutex_);
  core::Fit fit;
  if (StateOf(job).reserved_attempt == ledger.attempt && !StateOf(job).reserved.empty()) {
    for (const int32_t rank : ranks)
      if (capacity_.ReservedFor(PlaceName(job, ledger.attempt, rank))) fit.reserved.push_back(rank);
    std::sort(fit.reserved.begin(), fit.reserved.end());
  }
  const auto reserved = static_cast<int32_t>(fit.reserved.size());
  if (!shape->topology_key.empty())
    for (const int32_t rank : fit.reserved) peers.push_back(PlaceName(job, ledger.attempt, rank));
  const auto wanted = static_cast<int32_t>(ranks.size()) - reserved;
  core::RoomQueue::Standing& standing = StateOf(job).standing;
  standing = core::StandingOf(observed);
  standing.created = job.created.time_since_epoch().count();
  core::Fit more = capacity_.FitOf(shape, wanted, peers);
  if (more.room < wanted) {
    const core::Capacity::WithoutClaim lifted(capacity_);
    if (waiting_.MayUseClaim(name, standing))
      more = capacity_.FitOf(shape, wanted, peers);
    else if (capacity_.RoomFor(shape, wanted, peers) == wanted)
      more.missing = fmt::format("the room is kept for {}, which comes first", waiting_.head());
  }
  fit.room = reserved + more.room;
  fit.missing = std::move(more.missing);
  if (const auto awaited = core::AwaitedRoom(observed, fit, now))
    waiting_.Set(name, {shape, *awaited - reserved, std::move(peers), standing}, capacity_);
  else
    waiting_.Remove(name, capacity_);
  return fit;
}

bool KubeBackend::GiveUpPlaces(JobState& state) const {
  const bool any = !state.reserved.empty();
  for (const std::string& pod : state.reserved) capacity_.Unreserve(pod);
  state.reserved.clear();
  state.reserved_attempt = 0;
  return any;
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::ReserveRoom& action,
                          Done done) {
  const std::string name = write.key.ToString();
  std::vector<std::string> wanted;
  for (const int32_t rank : action.ranks) wanted.push_back(PlaceName(*job, action.attempt, rank));
  const core::Capacity::Shape shape = ShapeOf(*job, action.attempt, action.excluded_nodes);
  // Off the avoided nodes if others have room.
  core::Capacity::Shape strict;
  if (!action.avoided_nodes.empty()) {
    std::vector<std::string> excluded = action.excluded_nodes;
    excluded.insert(excluded.end(), action.avoided_nodes.begin(), action.avoided_nodes.end());
    std::sort(excluded.begin(), excluded.end());
    excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
    strict = RenderedShape(*job, excluded);
  }
  const std::vector<std::string> peers = PeersOf(*job, action.attempt, *shape);
  bool reserved = false;
  bool freed = false;
  {
    MutexLock lock(mutex_);
    // Read with the lock held: OnJob gives up the places of an attempt that is over.
    const Job current = jobs_.Get(name);
    if (current && current->uid == job->uid && core::MayReserve(current->status.ledger, action.attempt)) {
      JobState& state = StateOf(*current);
      for (const std::string& pod : state.reserved) {
        if (std::find(wanted.begin(), wanted.end(), pod) != wanted.end()) continue;
        capacity_.Unreserve(pod);
        freed = true;
      }
      {
        std::optional<core::Capacity::WithoutClaim> lifted;
        if (waiting_.MayUseClaim(name, state.standing)) lifted.emplace(capacity_);
        reserved =
            (strict && capacity_.Reserve(wanted, strict, peers)) || capacity_.Reserve(wanted, shape, peers);
      }
      waiting_.Refresh(capacity_);
      reserved = reserved && std::all_of(wanted.begin(), wanted.end(), [&](const std::string& pod) {
                   return capacity_.ReservedFor(pod) != nullptr;
                 });
      state.reserved_attempt = action.attempt;
      state.reserved = wanted;
      if (!reserved) freed = GiveUpPlaces(state) || freed;
    }
  }
  if (freed) CapacityChanged();
  Notify(name);
  if (reserved) return done(Revision{0});
  done(Error{Code::kConflict, fmt::format("no room any more for {} pods of {}", wanted.size(), name)});
}

}  // namespace ringmaster::kube
