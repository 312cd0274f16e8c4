// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the free capacity, and the places that are reserved for pods before they exist.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/wiring/pod_shape.h"

namespace ringmaster::kube {

std::string KubeBackend::PlaceName(const JobRecord& job, int64_t attempt, int32_t rank) {
  return core::RoomPlanner::PlaceOf(job.key.ToString(), attempt, rank);
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

std::vector<core::RoomPlanner::Alike> KubeBackend::ByKind(
    const JobRecord& job, int64_t attempt, const std::vector<int32_t>& ranks,
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
  using Alike = core::RoomPlanner::Alike;
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

KubeBackend::RoomInputs KubeBackend::RoomInputsOf(const JobRecord& job,
                                                  const core::Observed& observed) const {
  RoomInputs inputs;
  inputs.begun = core::NotBegun(observed.status.ledger) ? core::Begun(observed, Now()) : observed;
  const core::Ledger& ledger = inputs.begun.status.ledger;
  const std::vector<std::string> excluded = core::ExcludedNodes(ledger, Now());
  core::RoomPlanner::Gang& gang = inputs.gang;
  FindBound(job, inputs.begun, excluded, gang);
  inputs.claims_note = ClaimsNote(job, inputs.begun);
  gang.kinds = ByKind(job, ledger.attempt, core::WaitingRanks(inputs.begun), excluded);
  if (gang.kinds.empty()) return inputs;
  gang.peers = PeersOf(job, ledger.attempt, *gang.kinds.front().shape);
  const PriorityClassRecord priority = PriorityClassOf(job);
  gang.priority = priority.value;
  gang.preempts = priority.preempts;
  gang.created = job.created.time_since_epoch().count();
  for (const core::RoomPlanner::Alike& kind : gang.kinds) {
    inputs.unread = inputs.unread || kind.shape->unread;
    inputs.has_devices = inputs.has_devices || kind.shape->has_devices;
  }
  return inputs;
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::ReserveRoom& action,
                          Done done) {
  const std::string name = write.key.ToString();
  // Off the avoided nodes if others have room.
  std::vector<std::string> strict_excluded = action.excluded_nodes;
  strict_excluded.insert(strict_excluded.end(), action.avoided_nodes.begin(), action.avoided_nodes.end());
  std::sort(strict_excluded.begin(), strict_excluded.end());
  strict_excluded.erase(std::unique(strict_excluded.begin(), strict_excluded.end()), strict_excluded.end());
  // The ranks are sorted, like the kinds of the waiting ranks when their room was found.
  std::vector<core::RoomPlanner::Alike> kinds =
      ByKind(*job, action.attempt, action.ranks, action.excluded_nodes);
  if (!action.avoided_nodes.empty())
    for (core::RoomPlanner::Alike& kind : kinds)
      if (!kind.created)
        kind.rather = Counted(job->key.namespace_, RenderedShape(*job, kind.ranks.front(), strict_excluded));
  std::vector<std::string> peers;
  if (!kinds.empty()) peers = PeersOf(*job, action.attempt, *kinds.front().shape);
  core::RoomPlanner::Reservation result;
  {
    MutexLock lock(mutex_);
    // The job as it is stored: OnJob gives up the places of an attempt that is over.
    LearnJob(name);
    result = planner_.Reserve(name, job->uid, action.attempt, kinds, peers);
  }
  if (result.freed) CapacityChanged();
  Notify(name);
  if (result.reserved) return done(Revision{0});
  done(Error{Code::kConflict, fmt::format("no room any more for {} pods of {}", action.ranks.size(), name)});
}

}  // namespace ringmaster::kube
