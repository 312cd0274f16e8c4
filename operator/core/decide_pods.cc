// SPDX-License-Identifier: Apache-2.0

// The gang's pods: nodes for the whole gang or for none of it (CheckPlacement), then everything else that the
// ledger asks for (Converge).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/rng.h"
#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"
#include "operator/core/kueue_decide.h"
#include "operator/core/summary.h"

namespace ringmaster::core {

// ---- placement
//
// With the operator's own gate, a gang waits without pods until the nodes have room for it. Then its places
// are reserved and its pods are created, free to be scheduled. A quota or an admission webhook may refuse
// some of them, and a part of a gang must not hold nodes: then the others are withdrawn, and until a write
// succeeds the gang's pods are created gated and released together once all of them exist. The pods of a gang
// that runs and restarts in place already join it one by one.
//
// With any gang provider, a gang that did not find its nodes in time is withdrawn, so that other jobs can use
// the nodes that it holds, and tried again after a pause. The pauses of two jobs differ, so that two gangs
// that block each other do not meet again and again. A gang without pods holds nothing and is not withdrawn.
//
// A gang without any node holds nothing either if its scheduler places gangs in one step, or if it waits for
// an autoscaler, which adds nodes while pods wait. To create it again only costs writes, so it stays for a
// multiple of the limit; not for ever, since pods may exclude nodes that are good again, and `auto` may
// choose another scheduler. When nodes come, the limit starts again with each of its pods that gets one.

bool ReservesRoom(const Observed& o) { return o.provider == GangProvider::kGate && !o.job.autoscaler; }

bool Draining(const Observed& o) {
  return !o.strays.empty() || std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return pod.attempt != o.status.ledger.attempt;
  });
}

const Refusal* ActiveRefusal(const Observed& o, Time now) {
  if (o.preflight) return &*o.preflight;
  if (o.refusal && now < o.refusal->retry_at) return &*o.refusal;
  return nullptr;
}

namespace {

// Whether the scheduler's message names what the nodes lack. For a gang it does so for one pod; the others
// only say that the gang is incomplete.
bool NamesNodes(const Pod& pod) {
  return pod.waiting_message.find("nodes are available") != std::string::npos;
}

int32_t RoomForGated(const Observed& o, const Placement& p) {
  return std::min(o.fit.room, static_cast<int32_t>(p.gated.size()));
}

// Whether the gang runs, so that each further pod can join it alone.
bool RunsAlready(const Observed& o, const Placement& p) {
  return o.status.ledger.placed && o.job.in_place && p.bound >= p.needed;
}

// Whether the gang looks for its nodes with a limit.
bool MustPlace(const Observed& o) {
  return !o.status.ledger.placed && o.job.gang_timeout > Duration{0} && o.provider != GangProvider::kNone &&
         !o.preflight && !Draining(o);
}

// Returns when the gang began to look for nodes.
Time PlacingSince(const Ledger& ledger) {
  return std::max(ledger.attempt_since, ledger.not_before.value_or(ledger.attempt_since));
}

// Returns the time by which the gang must have its nodes; nullopt when no limit applies now.
std::optional<Time> PlacementLimit(const Observed& o) {
  if (!MustPlace(o)) return std::nullopt;
  // The time runs from the creation of the first pod, or from when one should have been created. No pod is
  // older than that, whatever its time stamp says: another clock wrote it.
  const Time decided = PlacingSince(o.status.ledger);
  std::optional<Time> created;
  for (const Pod& pod : o.pods)
    if (InGang(o.job, o.status.ledger, pod)) created = std::min(created.value_or(pod.created), pod.created);
  return std::max(decided, created.value_or(decided)) + o.job.gang_timeout;
}

// Returns when the last pod of the gang got its node; no time at all if none has.
Time LastPlaced(const Observed& o) {
  Time last{};
  for (const Pod& pod : o.pods)
    if (InGang(o.job, o.status.ledger, pod) && pod.bound() && !pod.deleting())
      last = std::max(last, pod.placed);
  return last;
}

// Whether the gang only waits for nodes and holds none, nor, as an incomplete one does, quota that others
// lack. Another attempt would help it only by another domain of its topology, or another scheduler.
bool AwaitsNodes(const Observed& o, const Placement& p, Time now) {
  return (o.job.autoscaler || o.all_at_once) && p.exist >= p.needed && p.unschedulable != nullptr &&
         p.bound == static_cast<int32_t>(o.status.ledger.succeeded.size()) && o.job.TopologyKey().empty() &&
         Ignored(p, now) == nullptr;
}

// Whether an elastic gang may run with fewer pods than wanted: it has run before, or has waited long enough.
bool MayRunSmaller(const Observed& o, Time now) {
  if (o.provider == GangProvider::kNone || o.status.ledger.stepped) return true;
  // A gang that reserves room has waited before its first pod was created.
  if (ReservesRoom(o)) return MustPlace(o) && now >= PlacingSince(o.status.ledger) + o.job.gang_timeout;
  const auto limit = PlacementLimit(o);
  return limit && now >= *limit;
}

// Returns the ranks of the waiting pods that may go ahead with the room there is. Sorted.
std::vector<int32_t> AdmittedRanks(const Observed& o, Time now) {
  std::vector<int32_t> ranks = WaitingRanks(o);
  const auto all = static_cast<int32_t>(ranks.size());
  const int32_t room = std::min(o.fit.room, all);
  const Placement p = PlacementOf(o, o.status.ledger);
  // A smaller gang is better than none.
  const bool smaller = MayRunSmaller(o, now) && p.bound + p.coming + room >= p.needed;
  ranks.resize(room == all || RunsAlready(o, p) || smaller ? static_cast<size_t>(room) : 0);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

uint64_t HashOf(const std::string& text) {
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

// Doubles with each withdrawal up to the maximum back-off. The result is between half of that and all of it,
// and depends on the job and the number of withdrawals only.
Duration WithdrawalPause(const Job& job, int32_t withdrawals) {
  Duration pause = std::max<Duration>(job.backoff_initial, seconds(1));
  for (int32_t i = 1; i < withdrawals && pause < job.backoff_max; ++i) pause *= 2;
  pause = std::min(pause, std::max(job.backoff_initial, job.backoff_max));
  SplitMix64 rng(KeyedRandom(HashOf(job.uid), static_cast<uint64_t>(withdrawals)));
  return pause / 2 + Duration(static_cast<int64_t>(rng.Uniform() * static_cast<double>(pause.count() / 2)));
}

// Ends the attempt of a gang that has no nodes for all of its pods, and pauses. `event`, `why`: for people.
Decision Withdraw(const Observed& o, const Placement& p, Time now, Reason event, const std::string& why) {
  Ledger next = o.status.ledger;
  next.withdrawn_for = MissingText(o, p, now) + TornText(o, p, now);
  next.withdrawals += 1;
  BeginAttempt(o, next, now);
  const Duration pause = WithdrawalPause(o.job, next.withdrawals);
  next.not_before = now + pause;
  std::string message = fmt::format("{}; {}: all workers are withdrawn, next try in {} s", next.withdrawn_for,
                                    why, ToMs(pause) / 1000);
  return WriteLedger(o, std::move(next), now, "the gang is withdrawn",
                     {{true, ReasonName(event), std::move(message)}});
}

// Withdraws a gang that has not run yet and may be scheduled in part, while the rest of it is refused.
std::optional<Decision> WithdrawRefused(const Observed& o, Time now) {
  if (!ReservesRoom(o) || !o.refusal || o.status.ledger.ready_since) return std::nullopt;
  const Placement p = PlacementOf(o, o.status.ledger);
  const int32_t free = p.exist - static_cast<int32_t>(p.gated.size());
  if (free == 0 || free >= p.needed) return std::nullopt;
  return Withdraw(o, p, now, ReasonOf(o.refusal->kind),
                  fmt::format("{} of {} workers were created", p.exist, p.wanted));
}

// Whether a gang that reserves room is created gated.
bool CreatesGated(const Observed& o, const Placement& p) {
  return ReservesRoom(o) && !RunsAlready(o, p) && (o.refusal || !p.gated.empty());
}

// Removes the gates of the pods that may be scheduled now.
void ReleaseGated(const Observed& o, Time now, std::vector<Action>& actions) {
  if (o.provider != GangProvider::kGate) return;
  const Placement p = PlacementOf(o, o.status.ledger);
  if (p.gated.empty()) return;
  ReleaseGang release{o.status.ledger.attempt};
  const std::vector<int32_t> admitted = AdmittedRanks(o, now);
  if (ReservesRoom(o) && admitted != o.fit.reserved) return;
  for (const Pod* pod : p.gated)
    if (!ReservesRoom(o) || std::binary_search(admitted.begin(), admitted.end(), pod->rank))
      release.pods.push_back({pod->name, pod->uid});
  const bool whole = !ReservesRoom(o) || release.pods.size() == admitted.size();
  if (!release.pods.empty() && (whole || RunsAlready(o, p))) actions.push_back(std::move(release));
}

}  // namespace

std::vector<int32_t> WaitingRanks(const Observed& o) {
  const Ledger& ledger = o.status.ledger;
  if (o.job.deleted || o.job.suspend || HeldByQuota(o) || !o.invalid.empty() || !o.strays.empty() ||
      !MayReserve(ledger, ledger.attempt))
    return {};
  const int32_t wanted = o.job.in_place ? o.job.Target() : ledger.gang_size;
  std::unordered_set<int32_t> exists(ledger.succeeded.begin(), ledger.succeeded.end());
  std::vector<int32_t> ranks;
  for (const Pod& pod : o.pods) {
    if (!InGang(o.job, ledger, pod)) continue;
    exists.insert(pod.rank);
    // A gated pod that is being deleted is only held, and is created again.
    if (pod.gated && pod.alive()) ranks.push_back(pod.rank);
  }
  for (const int32_t rank : o.job.RanksOf(wanted))
    if (!exists.contains(rank)) ranks.push_back(rank);
  // Pods of a role are alike, so the backend looks for room role by role. Workers are the largest as a rule.
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int32_t a, int32_t b) { return o.job.KindOf(a) < o.job.KindOf(b); });
  return ranks;
}

std::optional<int32_t> AwaitedRoom(const Observed& o, const Fit& fit, Time now) {
  if (!ReservesRoom(o) || ActiveRefusal(o, now) != nullptr) return std::nullopt;
  const auto waiting = static_cast<int32_t>(WaitingRanks(o).size());
  if (fit.room >= waiting) return std::nullopt;
  const Placement p = PlacementOf(o, o.status.ledger);
  if (RunsAlready(o, p)) return fit.room + 1;
  if (!MayRunSmaller(o, now)) return waiting;
  return std::max(p.needed - p.bound - p.coming, fit.room + 1);
}

std::optional<int32_t> QueuedRoom(const Observed& o, const Fit& fit, Time now) {
  if (const auto awaited = AwaitedRoom(o, fit, now)) return awaited;
  const Ledger& ledger = o.status.ledger;
  if (!ReservesRoom(o) || ActiveRefusal(o, now) != nullptr || RunsAlready(o, PlacementOf(o, ledger)) ||
      (ledger.not_before && now < *ledger.not_before))
    return std::nullopt;
  const size_t waiting = WaitingRanks(o).size();
  if (waiting <= fit.reserved.size()) return std::nullopt;
  return static_cast<int32_t>(waiting);
}

RoomQueue::Standing StandingOf(const Observed& o) {
  RoomQueue::Standing standing;
  standing.grows = RunsAlready(o, PlacementOf(o, o.status.ledger));
  standing.stuck = !standing.grows && std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && pod.alive() && !pod.deleting() && !pod.gated;
  });
  return standing;
}

bool MayReserve(const Ledger& ledger, int64_t attempt) {
  return attempt > 0 && ledger.attempt == attempt && ledger.outcome == Outcome::kNone && !ledger.suspended &&
         !ledger.stop_since;
}

bool KeepsPlaces(const Observed& o) { return ReservesRoom(o) && !(HeldByQuota(o) && o.pods.empty()); }

Placement PlacementOf(const Observed& o, const Ledger& ledger) {
  Placement p;
  const int32_t workers = o.job.in_place ? o.job.Target() : ledger.gang_size;
  p.wanted = workers + o.job.RolePods();
  p.needed = (o.job.in_place ? std::min(o.job.min, workers) : workers) + o.job.RolePods();
  // A rank that has done its part of the work keeps its place.
  p.exist = p.bound = static_cast<int32_t>(ledger.succeeded.size());
  bool reported = false;
  for (const Pod& pod : o.pods) {
    if (!InGang(o.job, ledger, pod) || pod.deleting() || HasSucceeded(ledger, pod.rank)) continue;
    p.exist += 1;
    if (pod.bound()) {
      p.bound += 1;
    } else if (pod.gated) {
      p.gated.push_back(&pod);
    } else if (!pod.awaits_scheduler.empty()) {
      p.coming += 1;
      if (p.ignored == nullptr || pod.created > p.ignored->created) p.ignored = &pod;
    } else {
      reported = true;
      if (pod.waiting_reason != kUnschedulable)
        p.coming += 1;
      else if (p.unschedulable == nullptr || (NamesNodes(pod) && !NamesNodes(*p.unschedulable)))
        p.unschedulable = &pod;
    }
  }
  // Schedulers may ignore a gang until its last pod exists.
  if (reported || p.exist < p.needed) p.ignored = nullptr;
  return p;
}

const Pod* Ignored(const Placement& p, Time now) {
  return p.ignored != nullptr && now >= p.ignored->created + kSchedulerGuard ? p.ignored : nullptr;
}

std::string MissingText(const Observed& o, const Placement& p, Time now) {
  if (o.preflight) return o.preflight->message;
  if (o.refusal) return o.refusal->message;
  if (ReservesRoom(o) && !o.fit.missing.empty()) return o.fit.missing;
  if (p.unschedulable != nullptr)
    return fmt::format("{}: {}", p.unschedulable->name,
                       p.unschedulable->waiting_message.empty() ? "the scheduler finds no node"
                                                                : p.unschedulable->waiting_message);
  if (const Pod* pod = Ignored(p, now); pod != nullptr) {
    // Volcano says nothing about a gang whose queue does not exist.
    const bool queue = !o.job.gang_queue.empty() && o.job.gang != GangMode::kCoscheduling;
    return fmt::format(
        "{}/{} pods have a node; no scheduler has looked at the others: start the scheduler {}, or choose "
        "another one with scheduling.gang{}",
        p.bound, p.wanted, pod->awaits_scheduler,
        queue
            ? fmt::format("; if it runs, create its queue {}, or correct scheduling.queue", o.job.gang_queue)
            : "");
  }
  return fmt::format("{} of {} workers have a node", p.bound, p.wanted);
}

std::vector<std::string> ExcludedNodes(const Ledger& ledger, Time now) {
  std::vector<std::string> names;
  for (const ExcludedNode& node : ledger.excluded)
    if (node.until > now) names.push_back(node.name);
  return names;
}

std::optional<Decision> CheckPlacement(const Observed& o, Time now, Requeue& requeue) {
  if (auto decision = WithdrawRefused(o, now)) return decision;
  auto limit = PlacementLimit(o);
  if (!limit) return std::nullopt;
  if (o.job.autoscaler || o.all_at_once) limit = std::max(*limit, LastPlaced(o) + o.job.gang_timeout);
  if (now < *limit) {
    requeue.By(*limit);
    return std::nullopt;
  }
  const Placement p = PlacementOf(o, o.status.ledger);
  // It runs with the nodes that it has, or holds nothing.
  if (p.bound >= p.needed || p.exist == 0) return std::nullopt;
  if (const Time patience = *limit + (kLimitsForNewNodes - 1) * o.job.gang_timeout;
      AwaitsNodes(o, p, now) && now < patience) {
    requeue.By(patience);
    return std::nullopt;
  }
  const Time last_chance = *limit + o.job.gang_timeout;
  const bool hopeful = p.bound + p.coming + RoomForGated(o, p) >= p.needed && Ignored(p, now) == nullptr;
  if (hopeful && now < last_chance) {
    requeue.By(last_chance);
    return std::nullopt;
  }
  return Withdraw(o, p, now, Reason::kGangTimeout,
                  fmt::format("not placed within {} s", ToMs(o.job.gang_timeout) / 1000));
}

// ---- convergence

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
    leaving = leaving || (pod.interrupted() && !lost && !done);
    present.insert(pod.rank);
    if (lost) {
      RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
    } else if (!o.job.HasRank(target, pod.rank) || pod.interrupted() || (done && pod.deleting())) {
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
