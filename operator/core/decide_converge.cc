// SPDX-License-Identifier: Apache-2.0

// Brings the pods to what the ledger says, and keeps the display fresh when there is nothing else to do.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"
#include "operator/core/summary.h"

namespace ringmaster::core {
namespace {

using NameSet = std::unordered_set<std::string_view>;

// An agent that was stopped before it ever spoke is in no report: it is noticed by its absence. Only so many
// are remembered at a time; the others follow when these are dealt with.
constexpr size_t kMaxAbsent = 64;

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
    // Every agent is absent at first: that is not worth a status write.
    const Time worth = pod.started + kAbsenceGuard;
    if (known != before.end())
      absent.push_back(*known);
    else if (now >= worth)
      absent.push_back({pod.uid, now});
    else
      requeue.By(worth);
  }
  return absent;
}

// Things seen that later decisions need to know, whatever happens to what shows them now.
Ledger Milestones(const Observed& o, Time now, Requeue& requeue) {
  Ledger next = o.status.ledger;
  const Placement p = PlacementOf(o, o.status.ledger);
  if (!next.placed && p.wanted > 0 && p.bound >= (MayRunSmaller(o, now) ? p.needed : p.wanted)) {
    next.placed = true;
    next.withdrawals = 0;
    next.withdrawn_for.clear();
  } else if (next.placed && p.bound < p.needed && o.provider != GangProvider::kNone) {
    // It looks for nodes again, under the same limit: two gangs could each hold what the other lacks.
    next.placed = false;
    next.attempt_since = now;
  }
  int32_t running = 0;
  for (const Pod& pod : o.pods)
    running += InGang(o.job, next, pod) && pod.phase == PodPhase::kRunning ? 1 : 0;
  if (!next.ready_since && next.placed && running >= p.needed && running == p.bound) next.ready_since = now;
  if (o.job.native) next.absent = Absent(o, now, requeue);
  if (std::erase_if(next.excluded, [&](const ExcludedNode& node) { return node.until <= now; }) > 0)
    ReplaceUnplaced(o, next);
  for (const ExcludedNode& node : next.excluded) requeue.By(node.until);
  if (o.report) {
    if (o.report->phase == rendezvous::GangPhase::kActive && o.report->step != next.base_step)
      next.stepped = true;
    // A coordinator that started anew counts from zero.
    next.worker_failures = std::min(next.worker_failures, o.report->worker_failures);
    next.restarts.without_progress = o.report->failures_without_progress;
  }
  // The books are kept whenever something is written; what the time goes into is worth a write of its own.
  if (const TimeAccounting time_accounting = TimeAccountingOf(o, next, now);
      time_accounting != next.time_accounting)
    AccountTime(o, next, now);
  return next;
}

// A gang that is being made changes from moment to moment, and each write of its status costs as much as a
// pod. So what shows it waits until all of them run, or have been quiet for as long as they took so far: a
// slow gang is written about a few times and not once for each of its pods. But whoever watches a native job
// come up, which takes it a moment longer, is told that it has its nodes.
std::optional<Time> SettledAt(const Observed& o, const Ledger& next) {
  if (next.ready_since || !o.status.display.progress_at) return std::nullopt;
  if (o.job.native && next.placed && !o.status.ledger.placed) return std::nullopt;
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

std::vector<std::string> Excluded(const Ledger& ledger, Time now) {
  std::vector<std::string> names;
  for (const ExcludedNode& node : ledger.excluded)
    if (node.until > now) names.push_back(node.name);
  return names;
}

// Makes the ranks that are missing, and before them what stands beside the pods. That need not wait for old
// pods to go: the sooner it is about the new ones, the less has the cluster to do for each old one that ends.
void Create(const Observed& o, const std::vector<bool>& present, bool draining, Time now, Decision& decision,
            Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  const auto target = static_cast<int32_t>(present.size());
  const bool missing = std::find(present.begin(), present.end(), false) != present.end();
  if (!draining && missing && ledger.not_before && now < *ledger.not_before)
    return requeue.By(*ledger.not_before);
  const PrepareGang support{ledger.attempt, target, o.job.native ? std::min(o.job.min, target) : target};
  if (o.prepared == support && (draining || !missing)) return;
  if (const Refusal* refusal = ActiveRefusal(o, now)) {
    if (!o.preflight) requeue.By(refusal->retry_at);
    return;
  }
  if (o.prepared != support) {
    decision.actions.insert(decision.actions.begin(), support);
    return;
  }
  const std::vector<std::string> excluded = Excluded(ledger, now);
  const std::vector<std::string> avoided = AvoidedNodes(ledger, now);
  const bool gated = o.provider == GangProvider::kGate && !o.job.autoscaler;
  int32_t made = 0;
  for (int32_t rank = 0; rank < target; ++rank) {
    if (present[static_cast<size_t>(rank)]) continue;
    decision.actions.push_back(CreatePod{PodName(o.job.name, ledger.attempt, rank), ledger.attempt, rank,
                                         target, gated, excluded, avoided});
    made += 1;
  }
  decision.events.push_back(
      {false, "CreatingPods", fmt::format("{} of {} workers, attempt {}", made, target, ledger.attempt)});
}

}  // namespace

Decision Converge(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  const int32_t target = o.job.Target();
  if (!o.job.native && target != ledger.gang_size)
    return NewAttempt(o, now, "another size",
                      fmt::format("from {} to {} workers: this framework needs a restart for that",
                                  ledger.gang_size, target));

  Decision decision;
  decision.reason = "converging";
  bool draining = false;
  const bool told_by_drain = DrainMayShowLostNode(ledger, now);
  std::vector<bool> present(static_cast<size_t>(target), false);
  for (const Pod& pod : o.pods) {
    if (pod.attempt > ledger.attempt)
      return NewAttempt(o, now, "pods are ahead of the status",
                        fmt::format("{} is of a later attempt than {}", pod.name, ledger.attempt));
    if (pod.attempt != ledger.attempt) {
      draining = true;
      // Its node may be found lost in a moment, and is what the gang failed of.
      if (told_by_drain && pod.alive() && pod.deleting() && !pod.unreachable_since) continue;
      RemovePod(o.job, pod, std::min(o.job.grace, kDrainGrace), now, decision.actions, requeue);
      continue;
    }
    const bool lost = std::binary_search(ledger.counted.begin(), ledger.counted.end(), pod.uid);
    if (pod.rank < target) present[static_cast<size_t>(pod.rank)] = true;
    if (lost) {
      RemovePod(o.job, pod, Duration{0}, now, decision.actions, requeue);
    } else if (pod.rank >= target || pod.deleting()) {
      RemovePod(o.job, pod, o.job.grace, now, decision.actions, requeue);  // a planned leave
    }
  }

  const bool missing = std::find(present.begin(), present.end(), false) != present.end();
  if (!o.job.native && missing && ledger.ready_since)
    return NewAttempt(o, now, "a pod vanished", "a worker was deleted by somebody: the whole gang restarts");

  if (o.job.native) {
    const SetGang order{ledger.attempt, o.job.min, o.job.max, target, false, o.job.slots};
    if (o.order != order) decision.actions.push_back(order);
  }
  Create(o, present, draining, now, decision, requeue);
  if (!draining && ActiveRefusal(o, now) == nullptr) ReleaseGated(o, now, decision.actions);
  if (decision.actions.empty()) {
    Ledger next = Milestones(o, now, requeue);
    if (const auto settled = SettledAt(o, next); settled && now < *settled) {
      requeue.By(*settled);
      decision.reason = "waiting for pods";
    } else {
      const Display display = Refresh(o, std::move(next), now, decision, requeue);
      decision.reason =
          display.Of(ConditionType::kReady).truth == Truth::kTrue ? "as wished" : "waiting for pods";
    }
  }
  decision.requeue_at = requeue.at();
  return decision;
}

}  // namespace ringmaster::core
