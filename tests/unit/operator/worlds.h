// SPDX-License-Identifier: Apache-2.0

// Small inputs for tests of core::Decide, and an interpreter that carries out decisions at once.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "operator/core/decide/decide.h"

namespace ringmaster::core {

inline constexpr Time kT0 = Time{} + seconds(10'000);

inline Pod MakePod(int64_t attempt, int32_t rank, PodPhase phase = PodPhase::kRunning) {
  Pod pod;
  pod.name = PodName("job", attempt, rank);
  pod.uid = "uid-" + pod.name;
  pod.attempt = attempt;
  pod.rank = rank;
  pod.phase = phase;
  pod.node = "node";
  pod.created = pod.placed = pod.started = kT0;
  return pod;
}

inline Pod Ended(int32_t rank, int32_t exit_code, const std::string& message = "") {
  Pod pod = MakePod(1, rank, exit_code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed);
  pod.exit_code = exit_code;
  pod.message = message;
  pod.ended = kT0;
  return pod;
}

// Returns a native job of `target` workers (elastic 1..8) as submitted.
inline Observed NewWorld(int32_t target = 2) {
  Observed o;
  o.job.name = "job";
  o.job.uid = "uid-job";
  o.job.replicas = target;
  o.job.min = 1;
  o.job.max = 8;
  o.job.grace = seconds(20);
  return o;
}

// Returns the same job in attempt 1: all pods run, and the gang trains at step 10.
inline Observed RunningWorld(int32_t target = 2, bool native = true) {
  Observed o = NewWorld(target);
  o.job.in_place = native;
  Ledger& l = o.status.ledger;
  l.attempt = 1;
  l.gang_size = target;
  l.start_time = l.active_since = kT0;
  l.attempt_since = kT0;
  l.placed = true;
  l.ready_since = kT0;
  l.accounted = kT0;
  l.time_accounting = TimeAccounting::kProductive;
  l.stepped = native;
  for (int32_t rank = 0; rank < target; ++rank) o.pods.push_back(MakePod(1, rank));
  o.prepared = PrepareGang{1, target, native ? std::min(o.job.min, target) : target};
  if (native) {
    o.order = SetGang{1, o.job.min, o.job.max, target, false};
    o.report.emplace();
    o.report->phase = rendezvous::GangPhase::kActive;
    o.report->generation = 5;
    o.report->step = 10;
    o.report->total_steps = 100;
    for (const Pod& pod : o.pods) o.report->live_pods.push_back(pod.name);
  }
  return o;
}

inline const SetStatus* StatusOf(const Decision& decision) {
  return decision.actions.size() == 1 ? std::get_if<SetStatus>(&decision.actions.front()) : nullptr;
}

// Returns the ledger that the decision writes. REQUIRES: it writes one.
inline Ledger Written(const Decision& decision) {
  const SetStatus* set = StatusOf(decision);
  CHECK(set != nullptr, "{}", ToString(decision));
  return set->status.ledger;
}

template <class A>
std::vector<A> All(const Decision& decision) {
  std::vector<A> found;
  for (const Action& action : decision.actions)
    if (const A* a = std::get_if<A>(&action)) found.push_back(*a);
  return found;
}

// Schedules the released pods at once.
inline void Bind(Observed& o, const ReleaseGang& release, Time now) {
  o.fit.reserved.clear();
  for (Pod& pod : o.pods) {
    const bool meant = std::any_of(release.pods.begin(), release.pods.end(),
                                   [&](const PodRef& ref) { return ref.uid == pod.uid; });
    if (!meant) continue;
    pod.gated = false;
    pod.node = "node";
    pod.phase = PodPhase::kRunning;
    pod.placed = pod.started = now;
  }
}

// Carries out the decision in an ideal world: everything succeeds at once.
inline void Obey(Observed& o, const Decision& decision, Time now) {
  for (const Action& action : decision.actions) {
    if (const auto* set = std::get_if<SetStatus>(&action)) {
      if (set->status.ledger.attempt != o.status.ledger.attempt) o.fit.reserved.clear();
      o.status = set->status;
    }
    if (const auto* order = std::get_if<SetGang>(&action)) o.order = *order;
    if (const auto* prepare = std::get_if<PrepareGang>(&action)) o.prepared = *prepare;
    if (const auto* reserve = std::get_if<ReserveRoom>(&action)) o.fit.reserved = reserve->ranks;
    if (const auto* release = std::get_if<ReleaseGang>(&action)) Bind(o, *release, now);
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      Pod pod = MakePod(create->attempt, create->rank);
      static int incarnations = 0;
      pod.uid += "-" + std::to_string(++incarnations);
      pod.created = pod.placed = pod.started = now;
      if (create->gated) {
        pod.gated = true;
        pod.phase = PodPhase::kPending;
        pod.node.clear();
      } else {
        std::erase(o.fit.reserved, pod.rank);
      }
      o.pods.push_back(pod);
    }
    if (const auto* remove = std::get_if<DeletePod>(&action))
      std::erase_if(o.pods, [&](const Pod& pod) { return pod.uid == remove->uid; });
  }
  std::sort(o.pods.begin(), o.pods.end(), [](const Pod& a, const Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
}

// Decides and obeys until a decision has no actions, and returns that decision.
inline Decision Settle(Observed& o, Time now) {
  Decision decision = Decide(o, now);
  for (int i = 0; !decision.actions.empty(); ++i) {
    CHECK(i < 50, "no fixpoint: {}", ToString(decision));
    Obey(o, decision, now);
    decision = Decide(o, now);
  }
  return decision;
}

// Returns a gang of `size`, of which no pod exists yet, for which there is room for `room`.
inline Observed WaitingWorld(int32_t size, int32_t room, bool native = false) {
  Observed o = NewWorld(size);
  o.job.in_place = native;
  o.job.min = native ? 2 : size;
  o.provider = GangProvider::kGate;
  o.fit = {room, room < size ? "needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room" : ""};
  // Write the attempt, reserve the places, prepare.
  for (int i = 0; i < 3; ++i) Obey(o, Decide(o, kT0), kT0);
  return o;
}

inline const Condition& ConditionOf(const Observed& o, ConditionType type) {
  return o.status.display.Of(type);
}

}  // namespace ringmaster::core
