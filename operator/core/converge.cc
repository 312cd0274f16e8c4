// Brings the pods to what the ledger says, and keeps the display fresh when there is nothing else to do.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/steps.h"
#include "operator/core/summary.h"

namespace ringmaster::core {
namespace {

// An agent that was stopped before it ever spoke is in no report: it is noticed by its absence.
std::vector<Absence> Absent(const Observed& o, Time now) {
  std::vector<Absence> absent;
  for (const Pod& pod : o.pods) {
    if (pod.phase != PodPhase::kRunning || pod.deleting() || pod.attempt != o.status.ledger.attempt) continue;
    const bool live = o.report && std::find(o.report->live_pods.begin(), o.report->live_pods.end(),
                                            pod.name) != o.report->live_pods.end();
    if (live) continue;
    const auto& before = o.status.ledger.absent;
    const auto known =
        std::find_if(before.begin(), before.end(), [&](const Absence& item) { return item.uid == pod.uid; });
    absent.push_back(known != before.end() ? *known : Absence{pod.uid, now});
  }
  return absent;
}

// Things seen that later decisions need to know, whatever happens to what shows them now.
Ledger Milestones(const Observed& o, int32_t target, Time now) {
  Ledger next = o.status.ledger;
  int32_t running = 0;
  for (const Pod& pod : o.pods)
    running += pod.attempt == next.attempt && pod.rank < target && pod.phase == PodPhase::kRunning ? 1 : 0;
  if (!next.ready_since && running == target) next.ready_since = now;
  if (o.job.native) next.absent = Absent(o, now);
  if (o.report) {
    if (o.report->phase == rendezvous::GangPhase::kActive && o.report->step != next.base_step)
      next.stepped = true;
    // A coordinator that started anew counts from zero.
    next.worker_failures = std::min(next.worker_failures, o.report->worker_failures);
    next.restarts.without_progress = o.report->failures_without_progress;
  }
  return next;
}

Decision Refresh(const Observed& o, int32_t target, Time now, Wake& wake) {
  Ledger next = Milestones(o, target, now);
  const bool milestone = next != o.status.ledger;
  Observed after = o;
  after.status.ledger = std::move(next);
  after.status.display = Summarize(after, now);
  const Display& before = o.status.display;
  bool write = milestone || !EqualButProgress(after.status.display, before);
  if (!write && after.status.display.progress != before.progress) {
    const Time due = before.progress_at ? *before.progress_at + o.job.progress_interval : now;
    write = now >= due;
    if (!write) wake.By(due);
  }
  Decision decision;
  decision.reason =
      after.status.display.Of(ConditionType::kReady).truth == Truth::kTrue ? "as wished" : "waiting for pods";
  if (write) decision.actions.push_back(SetStatus{std::move(after.status)});
  decision.requeue_at = wake.at();
  return decision;
}

Decision NewAttempt(const Observed& o, Time now, const char* reason, std::string message) {
  Ledger next = o.status.ledger;
  BeginAttempt(o, next);
  return WriteLedger(o, std::move(next), now, reason, {{false, "Restarting", std::move(message)}});
}

}  // namespace

Decision Converge(const Observed& o, Time now, Wake& wake) {
  const Ledger& ledger = o.status.ledger;
  const int32_t target = o.job.Target();
  if (!o.job.native && target != ledger.gang_size)
    return NewAttempt(o, now, "another size",
                      fmt::format("from {} to {} workers: this framework needs a restart for that",
                                  ledger.gang_size, target));

  Decision decision;
  decision.reason = "converging";
  bool draining = false;
  std::vector<bool> present(static_cast<size_t>(target), false);
  for (const Pod& pod : o.pods) {
    if (pod.attempt > ledger.attempt)
      return NewAttempt(o, now, "pods are ahead of the status",
                        fmt::format("{} is of a later attempt than {}", pod.name, ledger.attempt));
    if (pod.attempt != ledger.attempt) {
      draining = true;
      Remove(pod, std::min(o.job.grace, kDrainGrace), now, decision.actions, wake);
      continue;
    }
    const bool lost = std::binary_search(ledger.counted.begin(), ledger.counted.end(), pod.uid);
    if (pod.rank < target) present[static_cast<size_t>(pod.rank)] = true;
    if (lost) {
      Remove(pod, Duration{0}, now, decision.actions, wake);
    } else if (pod.rank >= target || pod.deleting()) {
      Remove(pod, o.job.grace, now, decision.actions, wake);  // a planned leave
    }
  }

  const bool missing = std::find(present.begin(), present.end(), false) != present.end();
  if (!o.job.native && missing && ledger.ready_since)
    return NewAttempt(o, now, "a pod vanished", "a worker was deleted by somebody: the whole gang restarts");

  if (o.job.native) {
    const SetGang order{ledger.attempt, o.job.min, o.job.max, target, false};
    if (o.order != order) decision.actions.push_back(order);
  }
  if (missing && !draining) {
    if (ledger.not_before && now < *ledger.not_before) {
      wake.By(*ledger.not_before);
    } else {
      int32_t made = 0;
      for (int32_t rank = 0; rank < target; ++rank) {
        if (present[static_cast<size_t>(rank)]) continue;
        decision.actions.push_back(
            CreatePod{PodName(o.job.name, ledger.attempt, rank), ledger.attempt, rank});
        made += 1;
      }
      decision.events.push_back(
          {false, "CreatingPods", fmt::format("{} of {} workers, attempt {}", made, target, ledger.attempt)});
    }
  }
  if (!decision.actions.empty()) {
    decision.requeue_at = wake.at();
    return decision;
  }
  return Refresh(o, target, now, wake);
}

}  // namespace ringmaster::core
