// SPDX-License-Identifier: Apache-2.0

// Nodes for the whole gang or for none of it.
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
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/rng.h"
#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/summary.h"

namespace ringmaster::core {

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

}  // namespace

bool MayRunSmaller(const Observed& o, Time now) {
  if (o.provider == GangProvider::kNone || o.status.ledger.stepped) return true;
  // A gang that reserves room has waited before its first pod was created.
  if (ReservesRoom(o)) return MustPlace(o) && now >= PlacingSince(o.status.ledger) + o.job.gang_timeout;
  const auto limit = PlacementLimit(o);
  return limit && now >= *limit;
}

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

bool CreatesGated(const Observed& o, const Placement& p) {
  return ReservesRoom(o) && !RunsAlready(o, p) && (o.refusal || !p.gated.empty());
}

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
    if (node.effect == NodeEffect::kNoSchedule && node.until > now) names.push_back(node.name);
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

}  // namespace ringmaster::core
