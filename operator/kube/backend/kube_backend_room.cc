// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the free capacity, and the places that are reserved for pods before they exist.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "operator/core/capacity/gang_room.h"
#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/wiring/pod_shape.h"

namespace ringmaster::kube {

std::string KubeBackend::PlaceName(const JobRecord& job, int64_t attempt, int32_t rank) {
  return job.key.namespace_ + "/" + core::PodName(job.key.name, attempt, rank);
}

core::Capacity::Shape KubeBackend::RenderedShape(const JobRecord& job, int32_t rank,
                                                 const std::vector<std::string>& excluded_nodes) const {
  const int32_t kind = job.spec->job.KindOf(rank);
  const wiring::Admission admission = AdmissionOf(job, rank);
  std::string inputs = fmt::format("{}/{}/{}/", job.spec->job.spec_generation, fmt::join(excluded_nodes, ","),
                                   fmt::join(admission.node_selector, ","));
  for (const Json& toleration : admission.tolerations) inputs += DumpJson(toleration);
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
    if (own.owner->uid != job.uid || own.pod.attempt != attempt || !own.pod.gated || own.pod.deleting() ||
        record->ended || !own.shape || job.spec->job.KindOf(own.pod.rank) != job.spec->job.KindOf(rank))
      continue;
    if (job.spec->job.TopologyKey().empty()) return Counted(job.key.namespace_, own.shape);
    return Counted(job.key.namespace_,
                   WithoutDomain(job, own.shape, *RenderedShape(job, rank, excluded_nodes)));
  }
  return Counted(job.key.namespace_, RenderedShape(job, rank, excluded_nodes));
}

std::vector<KubeBackend::Alike> KubeBackend::ByKind(const JobRecord& job, int64_t attempt,
                                                    const std::vector<int32_t>& ranks,
                                                    const std::vector<std::string>& excluded_nodes) const {
  std::map<int32_t, core::Capacity::Shape> created;  // pods that may use only one domain
  if (!job.spec->job.TopologyKey().empty()) {
    for (const auto& record : pods_.Group(job.key.ToString())) {
      const PodRecord::Own& own = *record->own;
      if (own.owner->uid == job.uid && own.pod.attempt == attempt && own.pod.gated && !own.pod.deleting() &&
          !record->ended && own.shape)
        created.emplace(own.pod.rank, Counted(job.key.namespace_, own.shape));
    }
  }
  std::vector<Alike> kinds;
  const auto same = [&](const Alike& kind, int32_t rank, const core::Capacity::Shape& shape) {
    return job.spec->job.KindOf(kind.ranks.front()) == job.spec->job.KindOf(rank) &&
           kind.created == (shape != nullptr) && (shape == nullptr || kind.shape == shape);
  };
  for (const int32_t rank : ranks) {
    const auto known = created.find(rank);
    const core::Capacity::Shape shape = known == created.end() ? nullptr : known->second;
    if (kinds.empty() || !same(kinds.back(), rank, shape))
      kinds.push_back({{}, shape ? shape : ShapeOf(job, attempt, rank, excluded_nodes), shape != nullptr});
    kinds.back().ranks.push_back(rank);
  }
  // The others can follow them.
  std::stable_partition(kinds.begin(), kinds.end(), [](const Alike& kind) { return kind.created; });
  return kinds;
}

std::vector<std::string> KubeBackend::PeersOf(const JobRecord& job, int64_t attempt,
                                              const core::PodShape& shape) const {
  std::vector<std::string> peers;
  if (shape.topology_key.empty() && shape.preferred_key.empty()) return peers;
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
  const std::vector<std::string> excluded = core::ExcludedNodes(ledger, now);
  core::Fit fit;
  fit.stranded = StrandedIn(job, observed, excluded);
  fit.claims_note = ClaimsNote(job, observed);
  {
    MutexLock lock(mutex_);
    StateOf(job).looked = true;
    StateOf(job).wants_room = !ranks.empty();
    if (ranks.empty()) {
      waiting_.Remove(name, capacity_);
      return fit;
    }
  }
  const std::vector<Alike> kinds = ByKind(job, ledger.attempt, ranks, excluded);
  std::vector<std::string> peers = PeersOf(job, ledger.attempt, *kinds.front().shape);
  const PriorityClassRecord priority = PriorityClassOf(job);
  fit.unread = std::any_of(kinds.begin(), kinds.end(), [](const Alike& kind) { return kind.shape->unread; });
  MutexLock lock(mutex_);
  if (IsStored(job) &&
      std::any_of(kinds.begin(), kinds.end(), [](const Alike& kind) { return kind.shape->has_devices; }))
    devices_.jobs.insert(name);
  if (StateOf(job).reserved_attempt == ledger.attempt && !StateOf(job).reserved.empty()) {
    for (const int32_t rank : ranks)
      if (capacity_.ReservedFor(PlaceName(job, ledger.attempt, rank))) fit.reserved.push_back(rank);
    std::sort(fit.reserved.begin(), fit.reserved.end());
  }
  if (!job.spec->job.TopologyKey().empty())
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
  const auto is_reserved = [&](int32_t rank) {
    return std::binary_search(fit.reserved.begin(), fit.reserved.end(), rank);
  };
  std::vector<core::Capacity::Ask> gang;
  for (const Alike& kind : kinds) {
    core::Capacity::Ask& ask = gang.emplace_back();
    ask.shape = kind.shape;
    for (const int32_t rank : kind.ranks)
      if (!is_reserved(rank)) ask.pods.push_back(PlaceName(job, ledger.attempt, rank));
  }
  const auto look = [&, this]() RM_REQUIRES(mutex_) {
    core::GangRoom room = core::RoomOf(capacity_, gang, peers);
    Look seen{fit, &kinds[room.short_of], std::move(room.peers)};
    seen.fit.missing = std::move(room.missing);
    seen.fit.room = room.room;
    for (size_t i = 0; i <= room.short_of; ++i)
      seen.fit.room += static_cast<int32_t>(kinds[i].ranks.size() - gang[i].pods.size());
    return seen;
  };
  // One that has room and does not take it, and is not looked at again, must not keep the others waiting.
  if (const auto known = job_states_.find(waiting_.head());
      known != job_states_.end() && known->second.room_since &&
      now - *known->second.room_since >= core::kTurnLimit)
    waiting_.Remove(known->first, capacity_);
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
  const std::string head = waiting_.head();
  // What follows changes the need of this job only, so others need no copy.
  const auto head_wait = head == name ? std::optional(*waiting_.HeadWait()) : std::nullopt;
  const auto queued = core::QueuedRoom(observed, fit, now);
  const bool has_room = queued && fit.room >= all;
  std::optional<Time>& room_since = StateOf(job).room_since;
  if (!has_room)
    room_since.reset();
  else if (!room_since)
    room_since = now;
  if (queued && IsStored(job) && (!has_room || now - *room_since < core::kTurnLimit)) {
    core::RoomQueue::Wait wait;
    const auto open = [&](const Alike& kind) {
      return !std::all_of(kind.ranks.begin(), kind.ranks.end(), is_reserved);
    };
    if (has_room) seen.short_of = &*std::find_if(kinds.begin(), kinds.end(), open);
    int32_t left = *queued;
    for (const Alike& kind : kinds) {
      const int32_t of_kind = std::min(left, static_cast<int32_t>(kind.ranks.size()));
      left -= of_kind;
      const auto reserved =
          static_cast<int32_t>(std::count_if(kind.ranks.begin(), kind.ranks.end(), is_reserved));
      if (&kind == seen.short_of) {
        wait.shape = kind.shape;
        wait.pods = of_kind - reserved;
        wait.earlier = wait.more.size();
      } else if (of_kind > reserved) {
        wait.more.push_back({kind.shape, of_kind - reserved});
      }
    }
    wait.peers = std::move(seen.peers);
    wait.standing = standing;
    wait.preempts = !has_room && core::MayPreempt(observed) && priority.preempts;
    waiting_.Set(name, std::move(wait), capacity_);
  } else {
    waiting_.Remove(name, capacity_);
  }
  // A new head, or one that needs something else now, may be given room by others.
  if (const core::RoomQueue::Wait* next = waiting_.HeadWait();
      next != nullptr && next->preempts && (waiting_.head() != head || (head_wait && *next != *head_wait)))
    plan_due_ = true;
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
  std::vector<core::Capacity::Ask> gang;
  std::vector<std::string> peers;
  // Sorted, like the kinds of the waiting ranks when their room was found.
  for (const Alike& kind : ByKind(*job, action.attempt, action.ranks, action.excluded_nodes)) {
    core::Capacity::Ask& ask = gang.emplace_back();
    for (const int32_t rank : kind.ranks) ask.pods.push_back(PlaceName(*job, action.attempt, rank));
    ask.shape = kind.shape;
    if (!action.avoided_nodes.empty() && !kind.created)
      ask.rather = Counted(job->key.namespace_, RenderedShape(*job, kind.ranks.front(), strict_excluded));
  }
  if (!gang.empty()) peers = PeersOf(*job, action.attempt, *gang.front().shape);
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
        if (waiting_.MayUseClaim(name, state.standing, capacity_)) lifted.emplace(capacity_);
        reserved = capacity_.Reserve(gang, peers);
      }
      if (reserved) waiting_.Remove(name, capacity_);
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
