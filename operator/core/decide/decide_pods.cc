// SPDX-License-Identifier: Apache-2.0

// The pods of the gang and its supporting objects, as the ledger asks for them, where decide_placement.cc
// finds room.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "operator/core/decide/decide_steps.h"

namespace ringmaster::core {

namespace {

using NameSet = std::unordered_set<std::string_view>;

// The longest list of absent pods that the ledger holds. Further pods are added when these are dealt with.
constexpr size_t kMaxAbsent = 64;

// Returns the running pods that take no part in the gang. An agent that was stopped before its first message
// is in no report, so only its absence shows.
std::vector<Absence> Absent(const Observed& o, Time now, Requeue& requeue) {
  NameSet live;
  if (o.report) live.insert(o.report->live_pods.begin(), o.report->live_pods.end());
  std::vector<Absence> absent;
  for (const Pod& pod : o.pods) {
    if (absent.size() == kMaxAbsent) break;
    if (pod.phase != PodPhase::kRunning || pod.deleting() || pod.attempt != o.status.ledger.attempt) continue;
    if (live.contains(pod.name)) continue;
    const auto& before = o.status.ledger.absent;
    const auto known =
        std::find_if(before.begin(), before.end(), [&](const Absence& item) { return item.uid == pod.uid; });
    // Every agent is absent at first. That alone does not justify a status write.
    const Time worth_writing = pod.started + kAbsenceGuard;
    if (known != before.end())
      absent.push_back(*known);
    else if (now >= worth_writing)
      absent.push_back({pod.uid, now});
    else
      requeue.By(worth_writing);
  }
  return absent;
}

// Returns the ledger with the observations that later decisions need, even after their source is gone.
Ledger Milestones(const Observed& o, Time now, Requeue& requeue) {
  Ledger next = o.status.ledger;
  const Placement p = PlacementOf(o, o.status.ledger);
  if (!next.placed && p.wanted > 0 && p.bound >= (MayRunSmaller(o, now) ? p.needed : p.wanted)) {
    next.placed = true;
    next.withdrawals = 0;
    next.withdrawn_for.clear();
    if (next.preemption && next.preemption->workers == 0) next.preemption.reset();
  } else if (next.placed && p.bound < p.needed && o.provider != GangProvider::kNone) {
    // The gang looks for nodes again, under the same limit: two gangs could each hold what the other lacks.
    next.placed = false;
    next.attempt_since = now;
  }
  int32_t running = 0;
  for (const Pod& pod : o.pods)
    running += InGang(o.job, next, pod) && pod.phase == PodPhase::kRunning ? 1 : 0;
  if (!next.ready_since && next.placed && running >= p.needed && running == p.bound) next.ready_since = now;
  if (o.job.in_place) next.absent = Absent(o, now, requeue);
  if (std::erase_if(next.excluded, [&](const ExcludedNode& node) { return node.until <= now; }) > 0)
    ReplaceUnplaced(o, next);
  for (const ExcludedNode& node : next.excluded) requeue.By(node.until);
  if (o.report) {
    // Programs need not report steps.
    if (o.report->phase == rendezvous::GangPhase::kActive &&
        (o.job.programs || o.report->step != next.base_step))
      next.stepped = true;
    // A restarted coordinator counts from zero.
    next.worker_failures = std::min(next.worker_failures, o.report->worker_failures);
    next.restarts.without_progress = o.report->failures_without_progress;
  }
  // Every status write accounts the time. A change of the account is written even when nothing else changed.
  if (TimeAccountingOf(o, next, now) != next.time_accounting) AccountTime(o, next, now);
  return next;
}

// Returns when the display of a starting gang may be written; nullopt: now.
//
// The pods of a starting gang change every few milliseconds, and each status write costs more than a pod.
// The write waits until all pods run, or until none has changed for as long as the start took so far: a slow
// gang costs a few writes, not one per pod.
std::optional<Time> SettledAt(const Observed& o, const Ledger& next) {
  if (next.ready_since) return std::nullopt;
  std::optional<Time> first;
  Time last{};
  for (const Pod& pod : o.pods) {
    if (!InGang(o.job, next, pod)) continue;
    first = std::min(first.value_or(pod.created), pod.created);
    last = std::max({last, pod.created, pod.placed, pod.started});
  }
  if (!first) return std::nullopt;
  return std::min(last + std::max(last - *first, kSettlePeriod), *first + kMaxSettlePeriod);
}

Decision NewAttempt(const Observed& o, Time now, const char* reason, std::string message) {
  Ledger next = o.status.ledger;
  BeginAttempt(o, next, now);
  return WriteLedger(o, std::move(next), now, reason, {{false, "Restarting", std::move(message)}});
}

// Makes `ranks` the waiting pods with reserved places. Returns true if that takes an action.
bool Reserve(const Observed& o, std::vector<int32_t> ranks, Time now, Decision& decision) {
  if (!ReservesRoom(o) || o.fit.reserved == ranks) return false;
  const Ledger& ledger = o.status.ledger;
  decision.actions.push_back(
      ReserveRoom{ledger.attempt, std::move(ranks), ExcludedNodes(ledger, now), AvoidedNodes(ledger, now)});
  return true;
}

// Whether the attempt has no pods yet and waits until there is room for them: until then nothing is created.
// The objects of an earlier attempt whose pods still drain are updated before that.
bool AwaitsFirstRoom(const Observed& o, bool draining) {
  return ReservesRoom(o) && !(draining && o.prepared) &&
         std::none_of(o.pods.begin(), o.pods.end(),
                      [&](const Pod& pod) { return pod.attempt == o.status.ledger.attempt; });
}

// Whether to ask if the pods would be admitted. A leader that reported that they wait for room had asked.
bool MustTry(const Observed& o) {
  const Reason reported = o.status.display.Of(ConditionType::kScheduled).reason;
  return o.untried && reported != Reason::kWaitingForCapacity && reported != Reason::kPreempting;
}

// Creates the supporting objects, then the missing pods that have room. The supporting objects do not wait
// for old pods to end: the Service selects one attempt, and updating it early saves the cluster work for each
// old pod that ends.
void Create(const Observed& o, const std::vector<int32_t>& absent, bool draining, Time now,
            Decision& decision, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  const int32_t workers = o.job.Target();
  const int32_t target = workers + o.job.RolePods();
  const bool missing = !absent.empty();
  if (!draining && missing && ledger.not_before && now < *ledger.not_before) {
    Reserve(o, {}, now, decision);
    return requeue.By(*ledger.not_before);
  }
  const PrepareGang support{ledger.attempt, target,
                            o.job.in_place ? std::min(o.job.min, workers) + o.job.RolePods() : target};
  const bool prepared = o.prepared == support;
  const bool awaits_room = AwaitsFirstRoom(o, draining);
  if ((prepared || awaits_room) && draining) return;
  if (prepared && !missing && !ReservesRoom(o)) return;
  if (const Refusal* refusal = ActiveRefusal(o, now)) {
    // Other gangs may use the places meanwhile.
    Reserve(o, {}, now, decision);
    if (!o.preflight) requeue.By(refusal->retry_at);
    return;
  }
  if (!prepared && awaits_room && MustTry(o)) {
    decision.actions.push_back(TryPods{ledger.attempt, target});
    return;
  }
  std::vector<int32_t> admitted;
  if (ReservesRoom(o)) admitted = AdmittedRanks(o, now);
  if ((prepared || awaits_room) && Reserve(o, admitted, now, decision)) return;
  if (!prepared) {
    if (!awaits_room || !admitted.empty()) decision.actions.insert(decision.actions.begin(), support);
    return;
  }
  const std::vector<std::string> excluded = ExcludedNodes(ledger, now);
  const std::vector<std::string> avoided = AvoidedNodes(ledger, now);
  const bool gated = CreatesGated(o, PlacementOf(o, ledger));
  int32_t created = 0;
  for (const int32_t rank : absent) {
    if (ReservesRoom(o) && !std::binary_search(admitted.begin(), admitted.end(), rank)) continue;
    decision.actions.push_back(CreatePod{PodName(o.job.name, ledger.attempt, rank), ledger.attempt, rank,
                                         target, gated, excluded, avoided});
    created += 1;
  }
  if (created == 0) return;
  decision.events.push_back(
      {false, "CreatingPods", fmt::format("{} of {} workers, attempt {}", created, target, ledger.attempt)});
}

// Whether a worker beyond the job's new size stays for now. The coordinator of a new leader has to hear from
// all workers first: if every program has ended meanwhile, the job is done, and no smaller gang starts.
bool AwaitsTakeover(const Observed& o, const Pod& pod) {
  return o.job.programs && o.status.ledger.stepped && pod.phase == PodPhase::kRunning && !pod.deleting() &&
         (!o.report || o.report->generation == 0);
}

}  // namespace

Decision Converge(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  const int32_t target = o.job.Target();
  if (!o.job.in_place && target != ledger.gang_size)
    return NewAttempt(o, now, "another size",
                      fmt::format("from {} to {} workers: this framework restarts to change its size",
                                  ledger.gang_size, target));

  // Two leaders at the same time may choose different sizes for the first attempt. Its pods would not fit
  // together.
  if (const int32_t size = target + o.job.RolePods();
      !o.job.in_place && o.prepared && o.prepared->attempt == ledger.attempt && o.prepared->size != size &&
      std::any_of(o.pods.begin(), o.pods.end(),
                  [&](const Pod& pod) { return pod.attempt == ledger.attempt; }))
    return NewAttempt(
        o, now, "prepared for another size",
        fmt::format("the gang has {} pods, and another leader created some of {}", size, o.prepared->size));

  Decision decision;
  decision.reason = "converging";
  bool draining = !o.strays.empty();  // they have the names of this job's pods
  bool leaving = false;
  const bool await_nodes = DrainMayShowLostNode(ledger, now);
  std::unordered_set<int32_t> present(ledger.succeeded.begin(), ledger.succeeded.end());
  for (const Pod& pod : o.pods) {
    if (pod.attempt > ledger.attempt && pod.attempt <= kMaxAttempt)
      return NewAttempt(o, now, "pods are ahead of the status",
                        fmt::format("{} is of a later attempt than {}", pod.name, ledger.attempt));
    if (pod.attempt != ledger.attempt) {
      draining = true;
      // The node may soon be reported lost, which would explain the gang's failure.
      if (await_nodes && pod.alive() && pod.deleting() && !pod.unreachable_since) continue;
      DrainPod(o.job, pod, now, decision.actions, requeue);
      continue;
    }
    const bool lost = std::binary_search(ledger.counted.begin(), ledger.counted.end(), pod.uid);
    const bool done = HasSucceeded(ledger, pod.rank);
    const bool surplus = !o.job.HasRank(target, pod.rank) && !AwaitsTakeover(o, pod);
    leaving = leaving || (pod.interrupted() && !lost && !done);
    present.insert(pod.rank);
    if (lost) {
      RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
    } else if (surplus || pod.interrupted() || (done && pod.deleting())) {
      RemovePod(o.job, pod, o.job.grace, now, decision.actions, requeue);  // a planned leave
    } else if (!pod.bound() && std::binary_search(o.fit.stranded.begin(), o.fit.stranded.end(), pod.rank)) {
      RemovePod(o.job, pod, o.job.grace, now, decision.actions, requeue);  // the next one may use other nodes
    }
  }

  std::vector<int32_t> absent = o.job.RanksOf(target);
  std::erase_if(absent, [&](int32_t rank) { return present.contains(rank); });
  const bool missing = !absent.empty();
  // The gang does not wait until the pod's grace period is over: it cannot go on without the pod. A gang of
  // which a worker has succeeded was complete, though all may never have been seen running at the same time.
  if (!o.job.in_place && (missing || leaving) && (ledger.ready_since || !ledger.succeeded.empty()))
    return NewAttempt(o, now, missing ? "a pod is missing" : "a pod is being deleted",
                      "a worker pod was deleted outside the operator: the whole gang restarts");

  if (o.job.in_place) {
    const SetGang order = OrderOf(o, false, now);
    const bool pause = o.job.programs && ledger.not_before && now < *ledger.not_before;
    if (pause) requeue.By(*ledger.not_before);
    // A new coordinator would start the programs at once.
    if (o.order != order && (o.order || !pause)) decision.actions.push_back(order);
  }
  Create(o, absent, draining, now, decision, requeue);
  if (!draining && ActiveRefusal(o, now) == nullptr) ReleaseGated(o, now, decision.actions);
  if (AwaitedRoom(o, o.fit, now)) requeue.By(now + kWaitingInterval);  // what is missing may have changed
  // It does not wait for room, so nothing reports that other domains than those of its pods have some now.
  if (!o.job.TopologyKey().empty() && PlacementOf(o, ledger).unschedulable != nullptr)
    requeue.By(now + kStrandedInterval);
  if (const Placement p = PlacementOf(o, ledger); p.ignored != nullptr && Ignored(p, now) == nullptr)
    requeue.By(p.ignored->created + kSchedulerGuard);
  if (decision.actions.empty()) {
    Ledger next = Milestones(o, now, requeue);
    if (const auto settled = SettledAt(o, next); settled && now < *settled) {
      requeue.By(*settled);
      decision.reason = "waiting for pods";
    } else {
      const Display display = Refresh(o, std::move(next), now, decision, requeue);
      decision.reason =
          display.Of(ConditionType::kReady).truth == Truth::kTrue ? "as desired" : "waiting for pods";
      if (decision.actions.empty()) ReportToQuota(o, now, decision.actions, requeue);
    }
  }
  decision.requeue_at = requeue.at();
  return decision;
}

}  // namespace ringmaster::core
