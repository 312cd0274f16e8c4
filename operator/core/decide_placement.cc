// SPDX-License-Identifier: Apache-2.0

// Nodes for the whole gang, or for none of it. With our gate: pods are made gated, and released together when
// there is room. With any provider: a gang that did not find its nodes in time is withdrawn, so that others
// can have what it holds, and tried again after a pause. The pauses of two jobs differ, so that gangs that
// are in each other's way do not go on meeting.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"

namespace ringmaster::core {
namespace {

uint64_t HashOf(const std::string& text) {
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

// Doubles up to the limit of restarts; between half and the whole of it, by job and time.
Duration WithdrawalPause(const Job& job, int32_t withdrawals) {
  Duration pause = std::max<Duration>(job.backoff_initial, seconds(1));
  for (int32_t i = 1; i < withdrawals && pause < job.backoff_max; ++i) pause *= 2;
  pause = std::min(pause, std::max(job.backoff_initial, job.backoff_max));
  SplitMix64 rng(KeyedRandom(HashOf(job.uid), static_cast<uint64_t>(withdrawals)));
  return pause / 2 + Duration(static_cast<int64_t>(rng.Uniform() * static_cast<double>(pause.count() / 2)));
}

int32_t RoomForGated(const Observed& o, const Placement& p) {
  return std::min(o.fit.room, static_cast<int32_t>(p.gated.size()));
}

Decision Withdraw(const Observed& o, const Placement& p, Time now) {
  Ledger next = o.status.ledger;
  next.withdrawn_for = MissingText(o, p);
  next.withdrawals += 1;
  BeginAttempt(o, next, now);
  const Duration pause = WithdrawalPause(o.job, next.withdrawals);
  next.not_before = now + pause;
  std::string message = fmt::format("{} within {} s: all workers are withdrawn, tried again in {} s",
                                    next.withdrawn_for, ToMs(o.job.gang_timeout) / 1000, ToMs(pause) / 1000);
  return WriteLedger(o, std::move(next), now, "the gang is withdrawn",
                     {{true, ReasonName(Reason::kGangTimeout), std::move(message)}});
}

// Of a gang, the scheduler tells one pod what the nodes lack, and the others that the gang is not complete.
bool NamesNodes(const Pod& pod) {
  return pod.waiting_message.find("nodes are available") != std::string::npos;
}

}  // namespace

bool Draining(const Observed& o) {
  return std::any_of(o.pods.begin(), o.pods.end(),
                     [&](const Pod& pod) { return pod.attempt != o.status.ledger.attempt; });
}

Placement PlacementOf(const Observed& o, const Ledger& ledger) {
  Placement p;
  p.wanted = o.job.native ? o.job.Target() : ledger.gang_size;
  p.needed = o.job.native ? std::min(o.job.min, p.wanted) : p.wanted;
  for (const Pod& pod : o.pods) {
    if (!InGang(o.job, ledger, pod) || pod.deleting()) continue;
    p.exist += 1;
    if (pod.bound()) {
      p.bound += 1;
    } else if (pod.gated) {
      p.gated.push_back({pod.name, pod.uid});
    } else if (pod.waiting_reason == kUnschedulable) {
      if (p.unschedulable == nullptr || (NamesNodes(pod) && !NamesNodes(*p.unschedulable)))
        p.unschedulable = &pod;
    } else {
      p.coming += 1;
    }
  }
  return p;
}

const Refusal* ActiveRefusal(const Observed& o, Time now) {
  if (o.preflight) return &*o.preflight;
  if (o.refusal && now < o.refusal->retry_at) return &*o.refusal;
  return nullptr;
}

std::optional<Time> PlacementLimit(const Observed& o) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.placed || o.job.gang_timeout == Duration{0} || o.provider == GangProvider::kNone ||
      o.preflight || Draining(o))
    return std::nullopt;
  // Since the first of them was made. When none could be made, since one should have been: nor was any made
  // before that, whatever the clock says that stamps them.
  const Time decided = std::max(ledger.attempt_since, ledger.not_before.value_or(ledger.attempt_since));
  std::optional<Time> made;
  for (const Pod& pod : o.pods)
    if (InGang(o.job, ledger, pod)) made = std::min(made.value_or(pod.created), pod.created);
  return std::max(decided, made.value_or(decided)) + o.job.gang_timeout;
}

bool MayRunSmaller(const Observed& o, Time now) {
  if (o.provider == GangProvider::kNone || o.status.ledger.stepped) return true;
  const auto limit = PlacementLimit(o);
  return limit && now >= *limit;
}

std::string MissingText(const Observed& o, const Placement& p) {
  if (o.preflight) return o.preflight->message;
  if (o.refusal) return o.refusal->message;
  if (!p.gated.empty() && !o.fit.missing.empty()) return o.fit.missing;
  if (p.unschedulable != nullptr)
    return fmt::format("{}: {}", p.unschedulable->name,
                       p.unschedulable->waiting_message.empty() ? "the scheduler finds no node"
                                                                : p.unschedulable->waiting_message);
  return fmt::format("{} of {} workers have a node", p.bound, p.wanted);
}

std::optional<Decision> CheckPlacement(const Observed& o, Time now, Requeue& requeue) {
  const auto limit = PlacementLimit(o);
  if (!limit) return std::nullopt;
  if (now < *limit) {
    requeue.By(*limit);
    return std::nullopt;
  }
  const Placement p = PlacementOf(o, o.status.ledger);
  if (p.bound >= p.needed) return std::nullopt;  // it runs with what it has
  const Time last_call = *limit + o.job.gang_timeout;
  if (p.bound + p.coming + RoomForGated(o, p) >= p.needed && now < last_call) {
    requeue.By(last_call);
    return std::nullopt;
  }
  return Withdraw(o, p, now);
}

void ReleaseGated(const Observed& o, Time now, std::vector<Action>& actions) {
  if (o.provider != GangProvider::kGate) return;
  Placement p = PlacementOf(o, o.status.ledger);
  if (p.gated.empty()) return;
  const auto all = static_cast<int32_t>(p.gated.size());
  const int32_t room = RoomForGated(o, p);
  int32_t released = 0;
  if (o.job.autoscaler) {
    released = all;
  } else if (o.status.ledger.placed && o.job.native) {
    released = room;  // they join a gang that is there: each for itself
  } else if (p.exist == p.wanted && room >= all) {
    released = all;
  } else if (MayRunSmaller(o, now)) {
    released = p.bound + p.coming + room >= p.needed ? room : 0;  // smaller is better than not at all
  }
  if (released == 0) return;
  p.gated.resize(static_cast<size_t>(released));
  actions.push_back(ReleaseGang{o.status.ledger.attempt, std::move(p.gated)});
}

}  // namespace ringmaster::core
