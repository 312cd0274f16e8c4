// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the free capacity, and the places that are reserved for pods before they exist.
#include <fmt/format.h>
#include <fmt/ranges.h>

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

// Returns the rank that stands for all whose pods have the same template: those of its role. The first worker
// may have another one.
int32_t KindOf(const JobRecord& job, int32_t rank) {
  if (rank >= core::kRanksPerRole) return rank / core::kRanksPerRole * core::kRanksPerRole;
  return rank > 0 && job.spec->job.first_differs ? 1 : 0;
}

// Returns the ranks in runs of one kind, in their order.
std::vector<std::vector<int32_t>> ByKind(const JobRecord& job, const std::vector<int32_t>& ranks) {
  std::vector<std::vector<int32_t>> runs;
  for (const int32_t rank : ranks) {
    if (runs.empty() || KindOf(job, runs.back().front()) != KindOf(job, rank)) runs.emplace_back();
    runs.back().push_back(rank);
  }
  return runs;
}

}  // namespace

core::Capacity::Shape KubeBackend::RenderedShape(const JobRecord& job, int32_t rank,
                                                 const std::vector<std::string>& excluded_nodes) const {
  const int32_t kind = KindOf(job, rank);
  const wiring::Admission admission = AdmissionOf(job, rank);
  const std::string inputs =
      fmt::format("{}/{}/{}", job.spec->job.spec_generation, fmt::join(excluded_nodes, ","),
                  fmt::join(admission.node_selector, ","));
  {
    MutexLock lock(mutex_);
    JobState& state = StateOf(job);
    if (state.shape_inputs != inputs) state.shapes.clear();
    state.shape_inputs = inputs;
    if (const auto known = state.shapes.find(kind); known != state.shapes.end()) return known->second;
  }
  wiring::Context context = ContextOf(job);
  context.gang = wiring::Gang::kGate;
  context.size = job.spec->job.Target() + job.spec->job.RolePods();
  context.excluded_nodes = excluded_nodes;
  context.admission = admission;
  core::Capacity::Shape shape =
      interners_.shapes.Intern(wiring::ShapeOf(wiring::PodOf(job.ToApi(), job.uid, rank, context)));
  MutexLock lock(mutex_);
  JobState& state = StateOf(job);
  if (state.shape_inputs == inputs) state.shapes[kind] = shape;
  return shape;
}

core::Capacity::Shape KubeBackend::ShapeOf(const JobRecord& job, int64_t attempt, int32_t rank,
                                           const std::vector<std::string>& excluded_nodes) const {
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid == job.uid && own.pod.attempt == attempt && own.pod.gated && !own.pod.deleting() &&
        !record->ended && own.shape && KindOf(job, own.pod.rank) == KindOf(job, rank))
      return own.shape;
  }
  return RenderedShape(job, rank, excluded_nodes);
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
  {
    MutexLock lock(mutex_);
    StateOf(job).looked = true;
    StateOf(job).wants_room = !ranks.empty();
    if (ranks.empty()) {
      waiting_.Remove(name, capacity_);
      return {};
    }
  }
  struct Alike {
    std::vector<int32_t> ranks;
    core::Capacity::Shape shape;
  };
  std::vector<Alike> kinds;
  for (std::vector<int32_t>& run : ByKind(job, ranks)) {
    const int32_t first = run.front();
    kinds.push_back({std::move(run), ShapeOf(job, ledger.attempt, first, core::ExcludedNodes(ledger, now))});
  }
  std::vector<std::string> peers = PeersOf(job, ledger.attempt, *kinds.front().shape);
  const PriorityClassRecord priority = PriorityClassOf(job);
  MutexLock lock(mutex_);
  core::Fit fit;
  if (StateOf(job).reserved_attempt == ledger.attempt && !StateOf(job).reserved.empty()) {
    for (const int32_t rank : ranks)
      if (capacity_.ReservedFor(PlaceName(job, ledger.attempt, rank))) fit.reserved.push_back(rank);
    std::sort(fit.reserved.begin(), fit.reserved.end());
  }
  if (!kinds.front().shape->topology_key.empty())
    for (const int32_t rank : fit.reserved) peers.push_back(PlaceName(job, ledger.attempt, rank));
  core::RoomQueue::Standing& standing = StateOf(job).standing;
  standing = core::StandingOf(observed);
  standing.priority = priority.value;
  standing.created = job.created.time_since_epoch().count();
  struct Look {
    core::Fit fit;
    const Alike* short_of = nullptr;
    std::vector<std::string> peers;
  };
  // Each kind finds the room that the earlier ones leave: they get their places for the length of this call.
  const auto look = [&, this]() RM_REQUIRES(mutex_) {
    Look seen;
    seen.fit.room = 0;
    seen.fit.reserved = fit.reserved;
    seen.short_of = &kinds.back();
    seen.peers = peers;
    std::vector<std::string> tentative;
    for (const Alike& kind : kinds) {
      std::vector<std::string> open;
      for (const int32_t rank : kind.ranks) {
        if (!std::binary_search(fit.reserved.begin(), fit.reserved.end(), rank))
          open.push_back(PlaceName(job, ledger.attempt, rank));
      }
      const auto wanted = static_cast<int32_t>(open.size());
      const auto reserved = static_cast<int32_t>(kind.ranks.size()) - wanted;
      core::Fit more = capacity_.FitOf(kind.shape, wanted, seen.peers);
      seen.fit.room += reserved + more.room;
      seen.fit.missing = std::move(more.missing);
      seen.short_of = &kind;
      if (more.room < wanted || &kind == &kinds.back()) break;
      if (!capacity_.Reserve(open, kind.shape, seen.peers)) break;  // lost to a node in two domains
      tentative.insert(tentative.end(), open.begin(), open.end());
      seen.peers.insert(seen.peers.end(), open.begin(), open.end());
    }
    for (const std::string& pod : tentative) capacity_.Unreserve(pod);
    return seen;
  };
  const auto all = static_cast<int32_t>(ranks.size());
  Look seen = look();
  if (seen.fit.room < all) {
    const core::Capacity::WithoutClaim lifted(capacity_);
    Look unclaimed = look();
    if (waiting_.MayUseClaim(name, standing, capacity_))
      seen = std::move(unclaimed);
    else if (unclaimed.fit.room == all)
      seen.fit.missing = fmt::format("the room is kept for {}, which comes first", waiting_.head());
  }
  fit = std::move(seen.fit);
  // The claim is for the kind that is short only.
  if (const auto awaited = core::AwaitedRoom(observed, fit, now)) {
    core::RoomQueue::Wait wait;
    int32_t left = *awaited;
    for (const Alike& kind : kinds) {
      const int32_t of_kind = std::min(left, static_cast<int32_t>(kind.ranks.size()));
      left -= of_kind;
      const auto reserved =
          static_cast<int32_t>(std::count_if(kind.ranks.begin(), kind.ranks.end(), [&](int32_t rank) {
            return std::binary_search(fit.reserved.begin(), fit.reserved.end(), rank);
          }));
      if (&kind == seen.short_of) {
        wait.shape = kind.shape;
        wait.pods = of_kind - reserved;
      } else if (of_kind > reserved) {
        wait.more.push_back({kind.shape, of_kind - reserved});
      }
    }
    wait.peers = std::move(seen.peers);
    wait.standing = standing;
    wait.preempts = core::MayPreempt(observed) && priority.preempts;
    waiting_.Set(name, std::move(wait), capacity_);
  } else {
    waiting_.Remove(name, capacity_);
  }
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
  // Off the avoided nodes if others have room.
  std::vector<std::string> strict_excluded = action.excluded_nodes;
  strict_excluded.insert(strict_excluded.end(), action.avoided_nodes.begin(), action.avoided_nodes.end());
  std::sort(strict_excluded.begin(), strict_excluded.end());
  strict_excluded.erase(std::unique(strict_excluded.begin(), strict_excluded.end()), strict_excluded.end());
  struct Alike {
    std::vector<std::string> pods;
    core::Capacity::Shape shape;
    core::Capacity::Shape strict;
  };
  std::vector<Alike> kinds;
  // Sorted, like the kinds of the waiting ranks when their room was found.
  for (const std::vector<int32_t>& run : ByKind(*job, action.ranks)) {
    Alike& kind = kinds.emplace_back();
    for (const int32_t rank : run) kind.pods.push_back(PlaceName(*job, action.attempt, rank));
    kind.shape = ShapeOf(*job, action.attempt, run.front(), action.excluded_nodes);
    if (!action.avoided_nodes.empty()) kind.strict = RenderedShape(*job, run.front(), strict_excluded);
  }
  std::vector<std::string> peers;
  if (!kinds.empty()) peers = PeersOf(*job, action.attempt, *kinds.front().shape);
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
      reserved = true;
      {
        std::optional<core::Capacity::WithoutClaim> lifted;
        if (waiting_.MayUseClaim(name, state.standing, capacity_)) lifted.emplace(capacity_);
        for (const Alike& kind : kinds) {
          reserved = reserved && ((kind.strict && capacity_.Reserve(kind.pods, kind.strict, peers)) ||
                                  capacity_.Reserve(kind.pods, kind.shape, peers));
          peers.insert(peers.end(), kind.pods.begin(), kind.pods.end());
        }
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
