#include "operator/core/summary.h"

#include <fmt/format.h>

namespace ringmaster::core {
namespace {

using rendezvous::GangPhase;

struct Counts {
  int32_t target = 0;
  int32_t placed = 0;   // of this attempt and within the target
  int32_t running = 0;  // of those
  bool older = false;
};

Counts Count(const Observed& o) {
  Counts counts;
  counts.target = o.job.native ? o.job.Target() : std::max(o.status.ledger.gang_size, 0);
  for (const Pod& pod : o.pods) {
    if (pod.attempt != o.status.ledger.attempt) {
      counts.older = true;
      continue;
    }
    if (pod.rank >= counts.target || pod.deleting() || !pod.alive()) continue;
    counts.placed += 1;
    counts.running += pod.phase == PodPhase::kRunning ? 1 : 0;
  }
  return counts;
}

Phase PhaseOf(const Observed& o, const Counts& counts, Time now) {
  const Ledger& l = o.status.ledger;
  if (l.outcome == Outcome::kSucceeded) return Phase::kSucceeded;
  if (l.outcome == Outcome::kFailed) return Phase::kFailed;
  if (l.suspended) return Phase::kSuspended;
  if (l.stop_since) return Phase::kSuspending;
  if (l.attempt == 0) return Phase::kPending;
  const bool active =
      o.job.native ? o.report && o.report->phase == GangPhase::kActive : l.ready_since.has_value();
  if (active) return counts.running == counts.target ? Phase::kRunning : Phase::kResizing;
  if (counts.older || l.failures_in_row > 0 || (l.not_before && *l.not_before > now))
    return Phase::kRestarting;
  return Phase::kStarting;
}

class Writer {
 public:
  Writer(Display& display, const Display& before, Time now) : display_(display), before_(before), now_(now) {}

  void Set(ConditionType type, bool holds, Reason reason, std::string message) {
    Set(type, holds ? Truth::kTrue : Truth::kFalse, reason, std::move(message));
  }
  void Set(ConditionType type, Truth truth, Reason reason, std::string message) {
    Condition& condition = display_.conditions[static_cast<size_t>(type)];
    const Condition& old = before_.Of(type);
    condition = {truth, reason, std::move(message),
                 old.truth == truth && old.reason != Reason::kUnknown ? old.since : now_};
  }

 private:
  Display& display_;
  const Display& before_;
  Time now_;
};

void SetGangConditions(const Observed& o, bool ended, Writer& writer) {
  const Ledger& l = o.status.ledger;
  if (ended || l.suspended) {
    writer.Set(ConditionType::kFabricReady, false, Reason::kEnded, "no gang is up");
    writer.Set(ConditionType::kProgressing, false, Reason::kEnded, "");
    return;
  }
  if (!o.job.native) {
    writer.Set(ConditionType::kFabricReady, Truth::kUnknown, Reason::kNotReported,
               "this framework does not report its transport");
    writer.Set(ConditionType::kProgressing, Truth::kUnknown, Reason::kNotReported, "");
    return;
  }
  const GangPhase phase = o.report ? o.report->phase : GangPhase::kForming;
  if (phase == GangPhase::kActive) {
    writer.Set(ConditionType::kFabricReady, true, Reason::kGangFormed, "");
  } else if (phase == GangPhase::kPaused) {
    writer.Set(ConditionType::kFabricReady, false, Reason::kGangPaused,
               fmt::format("fewer than {} workers: the others hold the state in memory and wait", o.job.min));
  } else {
    writer.Set(ConditionType::kFabricReady, false, Reason::kGangForming, "");
  }
  if (l.stop_since) {
    writer.Set(ConditionType::kProgressing, false, Reason::kStopping, "writing a checkpoint before the stop");
  } else if (phase == GangPhase::kPaused) {
    writer.Set(ConditionType::kProgressing, false, Reason::kGangPaused, "");
  } else if (l.stepped && phase == GangPhase::kActive) {
    writer.Set(ConditionType::kProgressing, true, Reason::kStepAdvanced, "");
  } else {
    writer.Set(ConditionType::kProgressing, false, Reason::kStarting, "");
  }
}

void SetPodConditions(const Observed& o, const Counts& counts, bool ended, Time now, Writer& writer) {
  const Ledger& l = o.status.ledger;
  const bool wanted = !ended && !l.suspended && !l.stop_since;
  if (!wanted) {
    const Reason why = ended ? Reason::kEnded : Reason::kStopping;
    writer.Set(ConditionType::kScheduled, false, why, "");
    writer.Set(ConditionType::kReady, false, why, "");
    writer.Set(ConditionType::kDegraded, false, Reason::kAsWished, "");
    return;
  }
  const std::string of_target = fmt::format("{}/{} pods", counts.running, counts.target);
  const bool backing_off = l.not_before && *l.not_before > now && counts.placed < counts.target;
  const Reason waiting = backing_off ? Reason::kBackOff : Reason::kWaitingForPods;
  const bool placed = counts.placed == counts.target;
  const bool ready = counts.running == counts.target;
  writer.Set(ConditionType::kScheduled, placed, placed ? Reason::kAllPodsPlaced : waiting,
             fmt::format("{}/{} pods", counts.placed, counts.target));
  writer.Set(ConditionType::kReady, ready, ready ? Reason::kAllPodsRunning : waiting, of_target);
  const bool degraded = l.ready_since.has_value() && !ready;
  writer.Set(ConditionType::kDegraded, degraded, degraded ? Reason::kBelowTarget : Reason::kAsWished,
             degraded ? of_target : "");
}

void SetEndConditions(const Ledger& l, Writer& writer) {
  const bool succeeded = l.outcome == Outcome::kSucceeded;
  const bool failed = l.outcome == Outcome::kFailed;
  writer.Set(ConditionType::kSucceeded, succeeded, succeeded ? l.outcome_reason : Reason::kNotFinished,
             succeeded ? l.outcome_message : "");
  writer.Set(ConditionType::kFailed, failed, failed ? l.outcome_reason : Reason::kNotFailed,
             failed ? l.outcome_message : "");
  writer.Set(
      ConditionType::kSuspended, l.suspended,
      l.suspended ? Reason::kSuspendRequested : (l.stop_since ? Reason::kStopping : Reason::kNotSuspended),
      "");
  writer.Set(ConditionType::kAdmitted, !l.suspended,
             l.suspended ? Reason::kSuspendRequested : Reason::kAccepted, "");
}

}  // namespace

Display Summarize(const Observed& o, Time now) {
  const Display& before = o.status.display;
  const bool ended = o.status.ended();
  const Counts counts = Count(o);
  Display display = before;
  display.observed_spec_generation = o.job.spec_generation;
  display.phase = PhaseOf(o, counts, now);
  display.replicas = counts.placed;
  display.ready_replicas = counts.running;
  if (o.report) {
    display.gang_generation = o.report->generation;
    display.progress = {o.report->step, o.report->total_steps, o.report->loss, o.report->samples_per_second,
                        o.report->checkpoint_step};
    if (o.report->done) display.weights_hash = o.report->done->weights_hash;
    if (display.progress != before.progress) display.progress_at = now;
  }
  Writer writer(display, before, now);
  SetPodConditions(o, counts, ended, now, writer);
  SetGangConditions(o, ended, writer);
  SetEndConditions(o.status.ledger, writer);
  return display;
}

bool EqualButProgress(const Display& a, const Display& b) {
  Display c = b;
  c.progress = a.progress;
  c.progress_at = a.progress_at;
  return a == c;
}

}  // namespace ringmaster::core
