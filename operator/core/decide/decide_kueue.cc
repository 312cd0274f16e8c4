// SPDX-License-Identifier: Apache-2.0

#include "operator/core/decide/decide_kueue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "operator/core/decide/decide.h"

namespace ringmaster::core {
namespace {

constexpr Duration kUnreadPause = seconds(1);
// A surplus is asked for so long after the job runs: to Kueue, whose times are in seconds, it is then the
// newer one of the job's Workloads, which it takes back first.
constexpr Duration kSurplusPause = seconds(2);

bool Manages(const Observed& o) {
  if (!o.quota) return false;
  if (!o.quota->queue.empty()) return true;
  if (o.quota->required && !HasStarted(o.status.ledger)) return true;
  // A job whose label was removed keeps to the quota that it still has. One that waits withdraws its request
  // before it starts: Kueue might admit it meanwhile.
  const Workload* w = LiveWorkload(o);
  return w != nullptr && (w->reserved || !HasStarted(o.status.ledger));
}

// Whether the quota is enough for the gang.
bool Suffices(const Observed& o, const Workload& w) {
  if (WorkersGranted(o, w) + SurplusGranted(o) < o.job.min) return false;
  return std::all_of(o.job.policy.roles.begin(), o.job.policy.roles.end(), [&](const auto& role) {
    return role.replicas == 0 || std::any_of(w.grants.begin(), w.grants.end(), [&](const Grant& grant) {
             return grant.name == role.name && PodsGranted(o, grant) >= role.replicas;
           });
  });
}

bool IsLive(const Pod& pod) { return pod.alive() || pod.lingers; }

SetWorkloadStatus StatusOf(const Workload& w, SetWorkloadStatus::Change change) {
  return {w.name, w.uid, w.revision, change};
}

// Gives up the admission of an evicted Workload, for the reason for which Kueue evicted it.
SetWorkloadStatus Cleared(const Workload& w) {
  SetWorkloadStatus clear = StatusOf(w, SetWorkloadStatus::Change::kClear);
  clear.reason = w.eviction_reason;
  clear.message = w.eviction_message;
  return clear;
}

// Appends the next step of removing the Workload: our finalizer holds it until its deletion was requested.
// `revision`: with which it is removed only; 0: any.
void Remove(const Workload& w, std::vector<Action>& actions, uint64_t revision = 0) {
  if (!w.deleting)
    actions.push_back(DeleteWorkload{w.name, w.uid, revision});
  else if (w.held)
    actions.push_back(ReleaseWorkload{w.name, w.uid});
}

// Appends the report whether the pods are ready, if Kueue does not know it.
void ReportReady(const Workload& w, bool ready, std::vector<Action>& actions) {
  const bool reported = w.pods_ready == PodsReady::kStarted || w.pods_ready == PodsReady::kRecovered;
  if (ready == reported) return;
  SetWorkloadStatus report = StatusOf(w, SetWorkloadStatus::Change::kReport);
  report.pods_ready = !ready                                        ? PodsReady::kWaitForRecovery
                      : w.pods_ready == PodsReady::kWaitForRecovery ? PodsReady::kRecovered
                                                                    : PodsReady::kStarted;
  actions.push_back(std::move(report));
}

std::string InactiveText(const Workload& w) {
  return fmt::format("{}; set spec.active of Workload {} to true to queue it again",
                     w.eviction_message.empty() ? "its Workload is not active" : w.eviction_message, w.name);
}

std::string NoFlavorText(const Workload& w) {
  return fmt::format("Kueue admitted {} to ResourceFlavor {}, which does not exist; create it",
                     w.surplus > 0 ? "more" : "the job", w.missing_flavor);
}

// Returns what the user can do about Kueue's reason, which does not name it; empty: the quota may come.
const char* RemedyOf(const std::string& waits_for) {
  // Kueue does not repeat why.
  if (waits_for.ends_with(" is inactive"))
    return "; its condition Active names the cause, such as a ResourceFlavor or an AdmissionCheck that does "
           "not exist, or a queue that was stopped";
  if (waits_for.find("does not contain the requested level") != std::string::npos)
    return "; correct the topology annotations (kueue.x-k8s.io/podset-...-topology) of the templates, or add "
           "the level to the flavor's Topology";
  if (waits_for.find("no topology domains at level") != std::string::npos)
    return "; label the nodes with all levels of the flavor's Topology, or correct the topology annotations "
           "(kueue.x-k8s.io/podset-...-topology) of the templates";
  if (waits_for.find("does not support TopologyAwareScheduling") != std::string::npos)
    return "; remove the topology annotations (kueue.x-k8s.io/podset-...-topology) of the templates, or give "
           "the flavor a topologyName";
  if (waits_for.starts_with("Admission is gated by"))
    return "; the job waits until its annotation kueue.x-k8s.io/admission-gated-by is removed";
  return "";
}

}  // namespace

bool HasStarted(const Ledger& ledger) { return ledger.attempt > 0 && !NotBegun(ledger) && !ledger.suspended; }

bool HeldByQuota(const Observed& o) {
  if (!Manages(o)) return false;
  const bool started = HasStarted(o.status.ledger);
  if (o.quota->api != Quota::Api::kRead) return !started;
  const Workload* w = LiveWorkload(o);
  if (w == nullptr || w->deleting || w->evicted || !Suffices(o, *w)) return true;
  if (!w->admitted && !(started && ReplacedInAdvance(*o.quota, *w) != nullptr)) return true;
  return !started && !w->missing_flavor.empty();
}

std::optional<QuotaHold> QuotaHoldOf(const Observed& o) {
  if (!HeldByQuota(o)) return std::nullopt;
  const Quota& quota = *o.quota;
  if (quota.queue.empty() && LiveWorkload(o) == nullptr)
    return QuotaHold{
        Reason::kNoQueue,
        "the operator starts only jobs that have a queue (--kueue-manage-jobs-without-queue-name); set the "
        "label kueue.x-k8s.io/queue-name to a LocalQueue of the job's namespace",
        true};
  if (quota.api == Quota::Api::kAbsent)
    return QuotaHold{
        Reason::kNoKueue,
        fmt::format("the label kueue.x-k8s.io/queue-name names the queue {}, and the cluster does "
                    "not serve workloads.kueue.x-k8s.io/v1beta2; install Kueue, or remove the label",
                    quota.queue),
        true};
  if (quota.api == Quota::Api::kUnread)
    return QuotaHold{Reason::kQueued, "the operator has not read Kueue's Workloads yet"};
  const Workload* w = LiveWorkload(o);
  if (w == nullptr) return QuotaHold{Reason::kQueued, "its Workload does not exist yet"};
  if (w->deleting) return QuotaHold{Reason::kQueued, "its Workload is being deleted"};
  if (!w->active) return QuotaHold{Reason::kDeactivated, InactiveText(*w)};
  if (w->evicted && w->reserved)
    return QuotaHold{Reason::kEvicted, fmt::format("{}: {}", w->eviction_reason, w->eviction_message)};
  if (w->admitted && !w->missing_flavor.empty()) return QuotaHold{Reason::kNoFlavor, NoFlavorText(*w), true};
  if (w->admitted)
    return QuotaHold{Reason::kWaitingForQuota,
                     fmt::format("{} workers are admitted, and the job needs {}: it is queued again",
                                 WorkersGranted(o, *w) + SurplusGranted(o), o.job.min)};
  if (w->waits_for.find("doesn't exist") != std::string::npos) {
    const char* create = w->waits_for.starts_with("ClusterQueue")
                             ? "create this ClusterQueue, or another LocalQueue in the job's namespace,"
                             : "create this LocalQueue in the job's namespace,";
    return QuotaHold{Reason::kNoQueue,
                     fmt::format("{}; {} or {} the label kueue.x-k8s.io/queue-name", w->waits_for, create,
                                 quota.defaulted ? "name another one by" : "correct"),
                     true};
  }
  const std::string position = PositionText(w->position);
  const std::string where =
      position.empty() ? "queue " + quota.queue : fmt::format("{} in queue {}", position, quota.queue);
  if (w->waits_for.empty())
    return QuotaHold{Reason::kQueued, (position.empty() ? "waiting in " : "waiting at ") + where};
  return QuotaHold{Reason::kWaitingForQuota,
                   fmt::format("{}: {}{}", where, w->waits_for, RemedyOf(w->waits_for))};
}

Decision WatchRemote(const Observed& o, Time now) {
  Requeue requeue;
  if (auto decision = ReleaseStrays(o, now, requeue)) return *std::move(decision);
  Decision decision;
  decision.reason = "runs on another cluster";
  const Workload* live = LiveWorkload(o);
  // The status may be behind the Workload: a job that has ended must not run again.
  const bool ended = o.status.ended() || (live == nullptr && o.quota && !o.quota->workloads.empty());
  if (o.job.deleted || (ended && live == nullptr)) {
    ReleaseWorkloads(o, decision.actions);
  } else if (o.invalid.empty() && !ended) {
    // Its pods are none of this cluster's: an eviction is cleared at once.
    if (!SettleWorkload(o, now, decision.actions, requeue) && live != nullptr && live->admitted)
      ReportReady(*live, o.status.display.Of(ConditionType::kReady).truth == Truth::kTrue, decision.actions);
  }
  decision.requeue_at = requeue.at();
  return decision;
}

Decision AwaitQuota(const Observed& o, Time now, Requeue& requeue) {
  Decision decision;
  decision.reason = "waiting for quota";
  if (!SettleWorkload(o, now, decision.actions, requeue)) Refresh(o, o.status.ledger, now, decision, requeue);
  decision.requeue_at = requeue.at();
  return decision;
}

bool SettleWorkload(const Observed& o, Time now, std::vector<Action>& actions, Requeue& requeue) {
  if (!o.quota) return false;
  // Nothing reports that a list without objects has been read.
  if (o.quota->api == Quota::Api::kUnread) requeue.By(now + kUnreadPause);
  if (o.quota->api != Quota::Api::kRead) return false;
  const size_t before = actions.size();
  const Quota& quota = *o.quota;
  const Workload* live = LiveWorkload(o);
  bool ending = false;
  for (const Workload& w : quota.workloads) {
    // A finished one cannot be admitted again.
    const bool unwanted = &w != live || o.job.suspend || (quota.queue.empty() && !w.reserved) ||
                          (w.reserved && !w.evicted && !Suffices(o, w));
    if (!w.deleting && !unwanted) continue;
    ending = true;
    Remove(w, actions);
  }
  if (ending) return actions.size() > before;
  if (live != nullptr && live->reserved) {
    if (!live->evicted) return false;
    // On the level, not on the edge: a lost request is repeated.
    actions.push_back(Cleared(*live));
    return true;
  }
  if (quota.queue.empty() || o.job.suspend) return false;
  if (!quota.prebuilt.empty()) {
    if (live != nullptr || !quota.offered) return false;
    actions.push_back(AdoptWorkload{quota.offered->name, quota.offered->uid, quota.offered->revision});
    return true;
  }
  std::vector<PodSet> sets = PodSetsOf(o.job);
  if (live != nullptr && live->queue == quota.queue && live->pod_sets == sets &&
      live->slice == o.job.slices && !live->outdated)
    return false;
  if (const Refusal* refusal = ActiveRefusal(o, now)) {
    if (!o.preflight) requeue.By(refusal->retry_at);
    return false;
  }
  MakeWorkload make;
  if (live != nullptr) {
    make.name = live->name;
    make.uid = live->uid;
    make.revision = live->revision;
  }
  make.queue = quota.queue;
  make.pod_sets = std::move(sets);
  make.slice = o.job.slices;
  actions.push_back(std::move(make));
  return true;
}

namespace {

// Returns the slice by which the job grows, or is about to. nullptr: none.
const Workload* NextSlice(const Observed& o, const Workload& live) {
  for (const Workload& w : o.quota->workloads)
    if (!w.finished && !w.deleting && !w.evicted && w.replaces == live.name) return &w;
  return nullptr;
}

bool Grows(const Observed& o, const Workload& live) {
  return o.job.slices && !o.quota->queue.empty() && o.job.Wanted() > WorkersGranted(o, live);
}

// Appends what the other Workloads of a job that runs need: those that were replaced, and the one by which it
// grows. Returns true if that takes an action, or one of them is being removed. REQUIRES: `live` is admitted.
bool SettleSlices(const Observed& o, const Workload& live, std::vector<Action>& actions) {
  const Workload* next = NextSlice(o, live);
  bool ending = false;
  for (const Workload& w : o.quota->workloads) {
    if (&w == &live || w.surplus > 0) continue;
    if (&w == next && (w.reserved || Grows(o, live))) continue;
    ending = true;
    if (w.reserved && !w.finished && !w.deleting) {
      // Kueue has done this itself for a slice that was replaced, unless it ended in between.
      const bool replaced = live.replaces == w.name;
      SetWorkloadStatus finish = StatusOf(w, SetWorkloadStatus::Change::kFinish);
      finish.reason = replaced ? "WorkloadSliceReplaced" : "OutOfSync";
      finish.message = (replaced ? "replaced by " : "the job has the quota of ") + live.name;
      actions.push_back(std::move(finish));
    } else {
      // Once Kueue has admitted it, it has the quota of all workers: the slice before it is finished.
      Remove(w, actions, w.revision);
    }
  }
  if (ending || !Grows(o, live)) return ending;
  MakeWorkload make;
  make.queue = live.queue;  // the quota of the slice before counts only there
  make.pod_sets = PodSetsOf(o.job);
  make.slice = true;
  make.replaces = live.name;
  make.chain = live.chain.empty() ? live.name : live.chain;
  if (next != nullptr) {
    if (next->reserved || (next->pod_sets == make.pod_sets && !next->outdated)) return false;
    make.name = next->name;
    make.uid = next->uid;
    make.revision = next->revision;
  }
  actions.push_back(std::move(make));
  return true;
}

// Returns how many workers the job wants above those of `live`.
int32_t SurplusWanted(const Observed& o, const Workload& live) {
  return o.job.surplus && !o.quota->queue.empty() ? std::max(o.job.Wanted() - WorkersGranted(o, live), 0) : 0;
}

// Returns the surplus that waits in the queue, or will when it is cleared. nullptr: none.
const Workload* WaitingSurplus(const Observed& o) {
  for (const Workload& w : o.quota->workloads)
    if (w.surplus > 0 && !w.finished && !w.deleting && (!w.reserved || w.evicted)) return &w;
  return nullptr;
}

// Whether there is a pod of a worker for which the job has no quota.
bool HasPodsBeyond(const Observed& o, int32_t workers) {
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    const auto place = RolePlaceOf(pod.rank);
    return place && place->role.empty() && place->index >= workers;
  });
}

// Appends what the surpluses of a job that runs need, or their end. Returns true if that takes an action.
// `used`: how many of the workers above `live` the job keeps; `running`: all of them run.
bool SettleSurpluses(const Observed& o, const Workload& live, int32_t used, bool draining, bool running,
                     Time now, std::vector<Action>& actions, Requeue& requeue) {
  const size_t before = actions.size();
  const int32_t wanted = SurplusWanted(o, live);
  const Surpluses surpluses = SurplusesOf(o);
  const Workload* waiting = WaitingSurplus(o);
  const Workload* last = nullptr;  // of those with quota
  int32_t coming = 0;              // workers of those with quota, admitted or not
  std::set<int32_t> numbers;
  for (const Workload& w : o.quota->workloads) {
    if (w.surplus == 0) continue;
    numbers.insert(w.surplus);
    if (w.finished || w.deleting || (!w.reserved && (&w != waiting || wanted == 0))) {
      Remove(w, actions, w.reserved ? 0 : w.revision);
    } else if (w.reserved && !w.evicted) {
      coming += WorkersGranted(o, w);
      if (w.admitted && (last == nullptr || w.surplus > last->surplus)) last = &w;
    }
  }
  if (actions.size() > before) return true;
  for (const Workload& w : o.quota->workloads) {
    // Its workers leave at their next step; Kueue gives the quota to others only when they are gone.
    if (w.surplus == 0 || !w.reserved || !w.evicted ||
        HasPodsBeyond(o, WorkersGranted(o, live) + surpluses.granted))
      continue;
    actions.push_back(Cleared(w));
    return true;
  }
  // One whose flavor does not exist is kept while the job wants its workers.
  const int32_t needed = std::max(used, std::min(wanted, surpluses.admitted));
  if (const int32_t unused = surpluses.admitted - needed; last != nullptr && unused > 0 && !draining) {
    const int32_t kept = WorkersGranted(o, *last) - unused;
    if (kept <= 0) {
      Remove(*last, actions);
      return true;
    }
    SetWorkloadStatus give = StatusOf(*last, SetWorkloadStatus::Change::kGiveBack);
    give.unused = {{kWorkerSet, last->pod_sets.front().count - kept}};
    actions.push_back(std::move(give));
    return true;
  }
  const int32_t missing = wanted - coming;
  const std::optional<Time>& ready = o.status.ledger.ready_since;
  const bool early = !ready || now < *ready + kSurplusPause;
  if (missing > 0 && waiting == nullptr && early) {
    if (ready) requeue.By(*ready + kSurplusPause);
  } else if (missing > 0 && (waiting == nullptr || !waiting->reserved)) {
    MakeWorkload make;
    make.queue = live.queue;
    make.pod_sets = {{kWorkerSet, missing, missing > 1 ? 1 : 0}};
    make.surplus = 1;
    while (numbers.contains(make.surplus)) ++make.surplus;
    if (waiting != nullptr) {
      make.name = waiting->name;
      make.uid = waiting->uid;
      make.revision = waiting->revision;
      make.surplus = waiting->surplus;
    }
    if (waiting == nullptr || waiting->queue != make.queue || waiting->pod_sets != make.pod_sets ||
        waiting->outdated) {
      actions.push_back(std::move(make));
      return true;
    }
  } else if (missing <= 0 && waiting != nullptr && !waiting->reserved) {
    Remove(*waiting, actions, waiting->revision);
    return true;
  }
  const Workload* without = surpluses.without_flavor;
  for (const Workload& w : o.quota->workloads) {
    const bool granted = without == nullptr || w.surplus < without->surplus;
    if (w.surplus > 0 && w.admitted && !w.evicted) ReportReady(w, running && granted, actions);
  }
  return actions.size() > before;
}

}  // namespace

std::string GrowthText(const Observed& o) {
  const Workload* live = LiveWorkload(o);
  if (live == nullptr || !live->admitted || live->evicted) return "";
  const Surpluses surpluses = SurplusesOf(o);
  const int32_t surplus_wanted = SurplusWanted(o, *live);
  const std::string runs =
      fmt::format("runs with {} of {} workers", WorkersGranted(o, *live) + surpluses.granted, o.job.Wanted());
  if (surpluses.without_flavor != nullptr && surplus_wanted > surpluses.granted)
    return fmt::format("{}: {}", runs, NoFlavorText(*surpluses.without_flavor));
  const Workload* next = Grows(o, *live)      ? NextSlice(o, *live)
                         : surplus_wanted > 0 ? WaitingSurplus(o)
                                              : nullptr;
  if (next == nullptr || next->reserved) return "";
  if (!next->active) return fmt::format("{}, and waits for more: {}", runs, InactiveText(*next));
  const std::string position = PositionText(next->position);
  return fmt::format("{}, and waits for more{}{}{}", runs, position.empty() ? "" : " at " + position,
                     next->waits_for.empty() ? "" : ": ", next->waits_for);
}

void ReportToQuota(const Observed& o, Time now, std::vector<Action>& actions, Requeue& requeue) {
  if (!o.quota || o.quota->api != Quota::Api::kRead) return;
  if (!Manages(o)) {
    for (const Workload& left : o.quota->workloads) Remove(left, actions);
    return;
  }
  const Workload* w = LiveWorkload(o);
  if (w == nullptr || w->deleting || !w->admitted || w->evicted) return;
  if (SettleSlices(o, *w, actions) && !actions.empty()) return;
  const Ledger& ledger = o.status.ledger;
  const int32_t base = WorkersGranted(o, *w);
  // What the spec asks for: workers that make room in our own queue come back.
  const int32_t target = std::max(std::min(o.job.Wanted(), base + SurplusGranted(o)), o.job.min);
  int32_t running = static_cast<int32_t>(ledger.succeeded.size());
  bool draining = false;
  for (const Pod& pod : o.pods) {
    draining |= !InGang(o.job, ledger, pod);
    running += InGang(o.job, ledger, pod) && !HasSucceeded(ledger, pod.rank) &&
                       (pod.phase == PodPhase::kRunning || pod.phase == PodPhase::kSucceeded)
                   ? 1
                   : 0;
  }
  if (SettleSurpluses(o, *w, std::max(target - base, 0), draining, running >= target, now, actions, requeue))
    return;
  // The quota of workers that have left or finished. Only a slice gets it back before the next admission.
  if (o.job.slices && target < base && !draining) {
    const int32_t used = target - (o.job.first_differs ? 1 : 0);
    ResizeWorkload resize{w->name, w->uid, w->revision, w->pod_sets};
    for (PodSet& set : resize.pod_sets)
      if (set.name == kWorkerSet) set.count = std::min(set.count, used);
    actions.push_back(std::move(resize));
    return;
  }
  if (!o.job.slices && !draining) {
    SetWorkloadStatus give = StatusOf(*w, SetWorkloadStatus::Change::kGiveBack);
    bool more = false;
    for (const PodSet& set : w->pod_sets) {
      const int32_t workers = std::min(target, base) - (o.job.first_differs ? 1 : 0);
      const int32_t wanted = set.name == kWorkerSet ? workers : set.count;
      const int32_t used = std::max(wanted - FinishedIn(o, set.name), 0);
      if (used < set.count) give.unused.push_back({set.name, set.count - used});
      more |= std::any_of(w->grants.begin(), w->grants.end(),
                          [&](const Grant& grant) { return grant.name == set.name && used < grant.count; });
    }
    if (more) {
      actions.push_back(std::move(give));
      return;
    }
  }
  ReportReady(*w, running >= PlacementOf(o, ledger).needed, actions);
}

void FinishWorkload(const Observed& o, std::vector<Action>& actions) {
  if (!o.quota || o.quota->api != Quota::Api::kRead) return;
  // With cleanPods None, pods may run on for as long as they like.
  if (o.job.clean_pods != CleanPods::kNone && std::any_of(o.pods.begin(), o.pods.end(), IsLive)) return;
  const Ledger& ledger = o.status.ledger;
  for (const Workload& w : o.quota->workloads) {
    if (w.finished || w.deleting) {
      if (w.held) actions.push_back(ReleaseWorkload{w.name, w.uid});
      continue;
    }
    SetWorkloadStatus finish = StatusOf(w, SetWorkloadStatus::Change::kFinish);
    finish.reason = ledger.outcome == Outcome::kSucceeded ? "Succeeded" : "Failed";
    finish.message = ledger.outcome_message;
    actions.push_back(std::move(finish));
  }
}

void ReleaseWorkloads(const Observed& o, std::vector<Action>& actions) {
  if (!o.quota) return;
  for (const Workload& w : o.quota->workloads)
    if (w.held) actions.push_back(ReleaseWorkload{w.name, w.uid});
}

}  // namespace ringmaster::core
