// SPDX-License-Identifier: Apache-2.0

#include "operator/core/kueue_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "operator/core/decide/decide_kueue.h"
#include "operator/core/model.h"

namespace ringmaster::core {

const char* PodsReadyName(PodsReady state) {
  switch (state) {
    case PodsReady::kUnreported:
      return "Unreported";
    case PodsReady::kWaitForStart:
      return "WaitForStart";
    case PodsReady::kStarted:
      return "Started";
    case PodsReady::kWaitForRecovery:
      return "WaitForRecovery";
    case PodsReady::kRecovered:
      return "Recovered";
  }
  return "?";
}

std::string PositionText(int32_t position) {
  if (position <= 0) return "";
  constexpr int32_t kExact = 10;
  constexpr int32_t kNear = 30;
  if (position <= kExact) return fmt::format("position {}", position);
  return fmt::format("position over {}", position <= kNear              ? kExact
                                         : position <= kPositionsListed ? kNear
                                                                        : kPositionsListed);
}

std::string PodSetOf(const Job& job, int32_t rank) {
  const auto place = RolePlaceOf(rank);
  if (place && !place->role.empty()) return place->role;
  return job.first_differs && rank == 0 ? kMasterSet : kWorkerSet;
}

std::vector<PodSet> PodSetsOf(const Job& job) {
  std::vector<PodSet> sets;
  const int32_t first = job.first_differs ? 1 : 0;
  if (first > 0) sets.push_back({kMasterSet, 1});
  if (const int32_t workers = (job.surplus ? job.min : job.Wanted()) - first; workers > 0) {
    const int32_t min = std::max(job.min - first, 1);
    // Kueue admits slices with all of their pods.
    sets.push_back({kWorkerSet, workers, min < workers && !job.slices ? min : 0});
  }
  for (const rendezvous::ProgramRole& role : job.policy.roles)
    if (role.replicas > 0) sets.push_back({role.name, role.replicas});
  return sets;
}

bool DecidesBefore(const Workload& a, const Workload& b) {
  const auto rank = [](const Workload& w) {
    // A request to grow does not decide yet.
    if (!w.reserved) return std::tuple(0, 0, 0, w.replaces.empty() ? 1 : 0);
    return std::tuple(1, w.evicted ? 0 : 1, w.admitted ? 1 : 0, w.replaces.empty() ? 0 : 1);
  };
  return rank(a) > rank(b);
}

const Workload* LiveWorkload(const Observed& o) {
  if (!o.quota) return nullptr;
  const Workload* live = nullptr;
  for (const Workload& w : o.quota->workloads)
    if (!w.finished && w.surplus == 0 && (live == nullptr || DecidesBefore(w, *live))) live = &w;
  return live;
}

const Workload* ReplacedInAdvance(const Quota& quota, const Workload& workload) {
  if (!workload.reserved || workload.admitted || workload.replaces.empty()) return nullptr;
  // One that was queued again still names the slice that it once replaced.
  for (const Workload& w : quota.workloads)
    if (w.name == workload.replaces && w.admitted) return &w;
  return nullptr;
}

int32_t FinishedIn(const Observed& o, const std::string& set) {
  if (o.job.in_place) return 0;
  std::set<int32_t> ranks(o.status.ledger.succeeded.begin(), o.status.ledger.succeeded.end());
  for (const Pod& pod : o.pods)
    if (IsSuccess(o, pod)) ranks.insert(pod.rank);
  return static_cast<int32_t>(
      std::count_if(ranks.begin(), ranks.end(), [&](int32_t rank) { return PodSetOf(o.job, rank) == set; }));
}

int32_t PodsGranted(const Observed& o, const Grant& grant) {
  return grant.count + std::min(grant.given_back, FinishedIn(o, grant.name));
}

int32_t WorkersGranted(const Observed& o, const Workload& workload) {
  int32_t workers = 0;
  int32_t finished = 0;
  for (const Grant& grant : workload.grants) {
    if (grant.name != kWorkerSet && grant.name != kMasterSet) continue;
    workers += grant.count;
    finished += PodsGranted(o, grant) - grant.count;
  }
  // Some of what was given back may be of workers above the present size.
  return std::max(workers, std::min(workers + finished, o.status.ledger.gang_size));
}

namespace {

// Whether a worker from `begin` to `end` - 1 has a pod.
bool HasPods(const Observed& o, int32_t begin, int32_t end) {
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    const auto place = RolePlaceOf(pod.rank);
    return place && place->role.empty() && place->index >= begin && place->index < end;
  });
}

}  // namespace

Surpluses SurplusesOf(const Observed& o) {
  Surpluses found;
  if (!o.quota) return found;
  std::map<int32_t, const Workload*> in_order;
  for (const Workload& w : o.quota->workloads)
    if (w.surplus > 0 && w.admitted && !w.evicted && !w.finished && !w.deleting) in_order[w.surplus] = &w;
  const Workload* live = in_order.empty() ? nullptr : LiveWorkload(o);
  const int32_t base = live != nullptr ? WorkersGranted(o, *live) : 0;
  for (const auto& [number, w] : in_order) {
    const int32_t workers = WorkersGranted(o, *w);
    const int32_t first = base + found.granted;
    found.admitted += workers;
    if (found.without_flavor == nullptr && !w->missing_flavor.empty() && !HasPods(o, first, first + workers))
      found.without_flavor = w;
    if (found.without_flavor == nullptr) found.granted += workers;
  }
  return found;
}

int32_t SurplusGranted(const Observed& o) { return SurplusesOf(o).granted; }

void ChooseQueue(Observed& o, bool has_default) {
  if (!o.quota || !o.quota->queue.empty()) return;
  const Workload* live = LiveWorkload(o);
  o.quota->defaulted = live != nullptr ? live->queue == kDefaultQueue
                                       : has_default && o.pods.empty() && !HasStarted(o.status.ledger);
  if (o.quota->defaulted) o.quota->queue = kDefaultQueue;
}

void LimitToQuota(Observed& o) {
  o.job.granted.reset();
  const Workload* workload = LiveWorkload(o);
  if (workload != nullptr && workload->reserved) {
    o.job.granted = WorkersGranted(o, *workload) + SurplusGranted(o);
    if (const Workload* before = ReplacedInAdvance(*o.quota, *workload))
      o.job.granted = std::min(*o.job.granted, WorkersGranted(o, *before));
  } else if (o.quota && o.quota->api != Quota::Api::kRead && o.status.ledger.gang_size > 0) {
    o.job.granted = o.status.ledger.gang_size;  // of the attempt that runs
  }
}

}  // namespace ringmaster::core
