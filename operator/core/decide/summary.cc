// SPDX-License-Identifier: Apache-2.0

#include "operator/core/decide/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/rules.h"
#include "rendezvous/transport_name.h"

namespace ringmaster::core {
namespace {

using rendezvous::GangPhase;

constexpr const char* kContainerCreating = "ContainerCreating";
constexpr const char* kPodInitializing = "PodInitializing";

// Returns "8 x NVIDIA H200, driver 580.95; device faults on: gpt-1-3".
std::string DevicesOf(const std::vector<rendezvous::WorkerFacts>& workers) {
  std::map<std::string, int> kinds;
  std::set<std::string> faulty;
  for (const rendezvous::WorkerFacts& worker : workers) {
    ++kinds[fmt::format("{}, driver {}", worker.facts.device, worker.facts.driver)];
    if (!worker.facts.device_faults.empty()) faulty.insert(worker.pod);
  }
  std::string text;
  for (const auto& [kind, count] : kinds)
    text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", count, kind);
  if (faulty.empty()) return text;
  const size_t named = std::min<size_t>(faulty.size(), 3);
  text += fmt::format(
      "; device faults on: {}",
      fmt::join(faulty.begin(), std::next(faulty.begin(), static_cast<std::ptrdiff_t>(named)), ", "));
  if (named < faulty.size()) text += fmt::format(" and {} more", faulty.size() - named);
  return text;
}

struct Counts {
  int32_t target = 0;
  int32_t placed = 0;            // live pods of this attempt and within the target
  int32_t running = 0;           // of those
  bool older = false;            // a pod of another attempt exists
  const Pod* waiting = nullptr;  // the first pod with a node that reports why it does not run
};

// The input of the display.
struct SummaryInput {
  const Observed& o;
  const Ledger& ledger;
  Counts counts;
  Placement placement;
  bool ended = false;
  Time now{};
  std::optional<QuotaHold> hold;  // why Kueue holds it
};

Counts Count(const Observed& o, const Ledger& ledger) {
  Counts counts;
  const int32_t workers = o.job.in_place ? o.job.Target() : std::max(ledger.gang_size, 0);
  counts.target = workers + o.job.RolePods();
  for (const Pod& pod : o.pods) {
    if (pod.attempt != ledger.attempt) {
      counts.older = true;
      continue;
    }
    if (!o.job.HasRank(workers, pod.rank) || pod.deleting() || !pod.alive()) continue;
    counts.placed += 1;
    counts.running += pod.phase == PodPhase::kRunning ? 1 : 0;
    if (counts.waiting == nullptr && pod.phase == PodPhase::kPending && pod.bound() &&
        !pod.waiting_reason.empty() && pod.waiting_reason != kContainerCreating &&
        pod.waiting_reason != kPodInitializing)
      counts.waiting = &pod;
  }
  return counts;
}

Phase PhaseOf(const SummaryInput& s) {
  const Ledger& l = s.ledger;
  if (l.outcome == Outcome::kSucceeded) return Phase::kSucceeded;
  if (l.outcome == Outcome::kFailed) return Phase::kFailed;
  if (s.hold && !l.stop_since && s.o.pods.empty()) return Phase::kPending;
  if (l.suspended) return Phase::kSuspended;
  if (l.stop_since) return Phase::kSuspending;
  if (l.attempt == 0) return Phase::kPending;
  const bool active =
      s.o.job.in_place ? s.o.report && s.o.report->phase == GangPhase::kActive : l.ready_since.has_value();
  if (active) return s.counts.running == s.counts.target ? Phase::kRunning : Phase::kResizing;
  if (!l.placed && l.failures_in_row == 0 && s.placement.bound == 0 && s.counts.waiting == nullptr &&
      s.o.provider != GangProvider::kNone)
    return Phase::kPending;
  if (s.counts.older || l.failures_in_row > 0 || (l.not_before && *l.not_before > s.now))
    return Phase::kRestarting;
  return Phase::kStarting;
}

class Writer {
 public:
  Writer(Display& display, const Display& before, Time now) : display_(display), before_(before), now_(now) {}

  void Clear(ConditionType type) { display_.conditions[static_cast<size_t>(type)] = {}; }
  const Condition& Of(ConditionType type) const { return display_.Of(type); }

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

// Whether some workers cannot reach others, so that no program starts.
bool IsCutOff(const Observed& o) { return o.report && !o.report->unreachable.empty(); }

std::string CutOffText(const Observed& o) {
  return o.report->unreachable + "; check the NetworkPolicies of the namespace and the network of the nodes";
}

void SetGangConditions(const SummaryInput& s, Writer& writer) {
  const Observed& o = s.o;
  const Ledger& l = s.ledger;
  if (s.ended || l.suspended) {
    writer.Set(ConditionType::kFabricReady, false, Reason::kEnded, "no gang is running");
    writer.Set(ConditionType::kProgressing, false, Reason::kEnded, "");
    return;
  }
  if (!o.job.in_place) {
    writer.Set(ConditionType::kFabricReady, Truth::kUnknown, Reason::kNotReported,
               "this framework does not report its transport");
    writer.Set(ConditionType::kProgressing, Truth::kUnknown, Reason::kNotReported, "");
    return;
  }
  const GangPhase phase = o.report ? o.report->phase : GangPhase::kForming;
  if (phase == GangPhase::kActive) {
    const std::string& transport = o.report->transport;
    if (o.job.wants_rdma && rendezvous::UsesTcp(transport)) {
      writer.Set(ConditionType::kFabricReady, false, Reason::kTcpFallback,
                 fmt::format(
                     "RDMA was requested, but gradients travel over {}, which is slow. The first lines of a "
                     "worker's log "
                     "name the devices; check that the pods have /dev/infiniband and that the port is ACTIVE",
                     transport));
    } else {
      writer.Set(ConditionType::kFabricReady, true, Reason::kGangFormed,
                 transport.empty() ? "" : "gradients travel over " + transport);
    }
  } else if (phase == GangPhase::kPaused) {
    writer.Set(ConditionType::kFabricReady, false, Reason::kGangPaused,
               fmt::format("fewer than {} workers: they keep the state in memory and wait", o.job.min));
  } else if (IsCutOff(o)) {
    writer.Set(ConditionType::kFabricReady, false, Reason::kPeersUnreachable, CutOffText(o));
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

// Rounds to `digits` significant digits, for people. The job's metrics have all digits.
double Rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  // The unit of a very small number is not finite; such a number stays as it is.
  return std::isfinite(unit) && unit > 0 ? std::round(value * unit) / unit : value;
}

// Returns what the user can do about a refusal.
const char* Remedy(const Refusal& refusal) {
  switch (refusal.kind) {
    case RefusalKind::kQuota:
      return "raise the ResourceQuota or free resources; the operator retries automatically";
    case RefusalKind::kPodSecurity:
      return "change these fields in workers.template, or the pod-security.kubernetes.io/enforce label of "
             "the namespace";
    case RefusalKind::kAdmission:
      return IsOfBrokenWebhook(refusal.message)
                 ? "repair the service of this webhook; the operator retries automatically"
                 : "change the manifest as the policy requires";
    case RefusalKind::kForbidden:
      return "grant the operator the permissions of its ClusterRole";
    case RefusalKind::kInvalid:
      return "correct workers.template";
    case RefusalKind::kInvalidLabel:
      return "correct or remove the label, and the job continues by itself";
    case RefusalKind::kNameTaken:
      return "remove the object with this name, or rename the job";
    case RefusalKind::kNamespaceEnding:
      return "create the job in another namespace";
    case RefusalKind::kNoGangProvider:
      return "install it, or set scheduling.gang to auto or gate";
    case RefusalKind::kNoHostPorts:
      return "end jobs on hostNetwork, or widen the operator's --host-ports; the operator retries "
             "automatically";
    case RefusalKind::kNoPriorityClass:
      return "create it, and the job continues by itself; or correct the name";
    case RefusalKind::kNoTopologyLabel:
      return "label the nodes, and the job continues by itself; or correct scheduling.topology.required";
    case RefusalKind::kOtherScheduler:
      return "remove schedulerName, or set scheduling.gang to gate";
    case RefusalKind::kNoQueue:
      return "create it, and the job continues by itself; or correct scheduling.queue";
  }
  return "";
}

const Refusal* RefusalOf(const Observed& o) {
  if (o.preflight) return &*o.preflight;
  return o.refusal ? &*o.refusal : nullptr;
}

// Returns why not every pod has a node.
std::pair<Reason, std::string> WhyNotPlaced(const SummaryInput& s) {
  const Ledger& l = s.ledger;
  const Placement& p = s.placement;
  const std::string count = fmt::format("{}/{} pods have a node", p.bound, p.wanted);
  if (const Refusal* refusal = RefusalOf(s.o)) return {ReasonOf(refusal->kind), count};
  if (l.not_before && *l.not_before > s.now) {
    if (l.withdrawals > 0)
      return {Reason::kGangTimeout, fmt::format("{}; withdrawn, next try later", l.withdrawn_for)};
    return {Reason::kBackOff,
            fmt::format("{}; {} failures in a row: the next pods are created {:.0f} s after the last one",
                        count, l.failures_in_row, ToSeconds(BackoffDelay(s.o.job, l.failures_in_row)))};
  }
  // Of an attempt that only begins the room is not known.
  const bool awaits_room =
      ReservesRoom(s.o) && !s.o.fit.missing.empty() && s.o.status.ledger.attempt == l.attempt;
  if (p.exist == 0 && (!s.o.prepared || s.o.prepared->attempt != l.attempt) && !s.counts.older &&
      !awaits_room)
    return {Reason::kPreparing, count};
  // Without a message about room, which would stay for a while.
  if (ReservesRoom(s.o) && s.o.fit.unread)
    return {Reason::kPreparing, fmt::format("{}; reading the devices of the cluster", count)};
  if (ReservesRoom(s.o) && !s.o.fit.missing.empty()) {
    if (s.o.fit.preempts.empty()) return {Reason::kWaitingForCapacity, s.o.fit.missing};
    return {Reason::kPreempting, fmt::format("{}; preempts {}", s.o.fit.missing, s.o.fit.preempts)};
  }
  const std::string note = s.o.fit.claims_note.empty() ? "" : "; " + s.o.fit.claims_note;
  if (p.unschedulable != nullptr) return {Reason::kUnschedulable, MissingText(s.o, p, s.now) + note};
  if (Ignored(p, s.now) != nullptr) return {Reason::kNoScheduler, MissingText(s.o, p, s.now)};
  return {Reason::kWaitingForPods, count + note};
}

// Returns why not every pod runs.
std::pair<Reason, std::string> WhyNotReady(const SummaryInput& s) {
  std::string count = fmt::format("{}/{} pods", s.counts.running, s.counts.target);
  if (const Pod* pod = s.counts.waiting; pod != nullptr) {
    return {WaitsForImage(*pod) ? Reason::kImagePullFailed : Reason::kContainerNotCreated,
            fmt::format("{}; {}: {}", count, pod->name, WaitingText(*pod))};
  }
  const bool pause = s.ledger.not_before && *s.ledger.not_before > s.now && s.counts.placed < s.counts.target;
  return {pause ? Reason::kBackOff : Reason::kWaitingForPods, std::move(count)};
}

void SetPodConditions(const SummaryInput& s, Writer& writer) {
  const Ledger& l = s.ledger;
  if (s.hold && !l.stop_since && s.o.pods.empty()) {
    writer.Set(ConditionType::kScheduled, false, s.hold->reason, "");
    writer.Set(ConditionType::kReady, false, s.hold->reason, "");
    writer.Set(ConditionType::kDegraded, false, Reason::kAsDesired, "");
    return;
  }
  const bool wanted = !s.ended && !l.suspended && !l.stop_since;
  if (!wanted) {
    const Reason why = s.ended ? Reason::kEnded : Reason::kStopping;
    writer.Set(ConditionType::kScheduled, false, why, "");
    // Ready also says that nothing is left to do: tools wait for it after they applied a manifest.
    if (l.outcome == Outcome::kSucceeded) {
      writer.Set(ConditionType::kReady, true, l.outcome_reason, l.outcome_message);
    } else if (!s.ended && l.suspended && s.o.job.suspend) {
      writer.Set(ConditionType::kReady, true, Reason::kSuspendRequested, "");
    } else {
      writer.Set(ConditionType::kReady, false, why, "");
    }
    writer.Set(ConditionType::kDegraded, false, Reason::kAsDesired, "");
    return;
  }
  const Placement& p = s.placement;
  if (p.bound == p.wanted && p.wanted > 0) {
    writer.Set(ConditionType::kScheduled, true, Reason::kAllPodsPlaced,
               fmt::format("{}/{} pods have a node", p.bound, p.wanted));
  } else {
    auto [reason, message] = WhyNotPlaced(s);
    writer.Set(ConditionType::kScheduled, false, reason, std::move(message));
  }
  const bool ready = s.counts.running == s.counts.target;
  if (ready && IsCutOff(s.o)) {
    writer.Set(ConditionType::kReady, false, Reason::kPeersUnreachable, CutOffText(s.o));
  } else if (ready) {
    writer.Set(ConditionType::kReady, true, Reason::kAllPodsRunning,
               fmt::format("{}/{} pods", s.counts.running, s.counts.target));
  } else {
    auto [reason, message] = WhyNotReady(s);
    writer.Set(ConditionType::kReady, false, reason, std::move(message));
  }
  if (s.o.report && !s.o.report->checkpoint_failure.empty()) {
    writer.Set(ConditionType::kDegraded, true, Reason::kCheckpointFailing,
               "training continues without a new checkpoint: " + s.o.report->checkpoint_failure);
    return;
  }
  const bool degraded = l.ready_since.has_value() && !ready;
  writer.Set(ConditionType::kDegraded, degraded, degraded ? Reason::kBelowTarget : Reason::kAsDesired,
             degraded ? fmt::format("{}/{} pods", s.counts.running, s.counts.target) : "");
}

void SetAdmitted(const SummaryInput& s, Writer& writer) {
  const Refusal* refusal = RefusalOf(s.o);
  if (!s.o.invalid.empty()) {
    writer.Set(ConditionType::kAdmitted, false, Reason::kInvalid, s.o.invalid);
  } else if (s.hold && !(refusal != nullptr && s.o.pods.empty())) {
    writer.Set(ConditionType::kAdmitted, false, s.hold->reason, s.hold->message);
  } else if (s.ledger.suspended && (s.o.job.suspend || refusal == nullptr)) {
    writer.Set(ConditionType::kAdmitted, false, Reason::kSuspendRequested, "");
  } else if (refusal != nullptr && !s.ended && !s.ledger.stop_since) {
    writer.Set(ConditionType::kAdmitted, false, ReasonOf(refusal->kind),
               fmt::format("{}; {}", refusal->message, Remedy(*refusal)));
  } else {
    writer.Set(ConditionType::kAdmitted, true, Reason::kAccepted,
               s.ended || s.ledger.stop_since ? "" : GrowthText(s.o));
  }
}

void SetPreempted(const SummaryInput& s, Writer& writer) {
  const auto& preemption = s.ledger.preemption;
  if (!preemption || s.ended) return writer.Clear(ConditionType::kPreempted);
  const bool whole = preemption->workers == 0;
  writer.Set(ConditionType::kPreempted, true, whole ? Reason::kPreemptedWhole : Reason::kPreemptedToFewer,
             whole ? PreemptorText(*preemption) + ": the job resumes when there is room again"
                   : fmt::format("{}: {} of {} workers stay", PreemptorText(*preemption), preemption->workers,
                                 s.o.job.Wanted()));
}

void SetEndConditions(const SummaryInput& s, Writer& writer) {
  const Ledger& l = s.ledger;
  const bool succeeded = l.outcome == Outcome::kSucceeded;
  const bool failed = l.outcome == Outcome::kFailed;
  writer.Set(ConditionType::kSucceeded, succeeded, succeeded ? l.outcome_reason : Reason::kNotFinished,
             succeeded ? l.outcome_message : "");
  writer.Set(ConditionType::kFailed, failed, failed ? l.outcome_reason : Reason::kNotFailed,
             failed ? l.outcome_message : "");
  const Reason suspended = s.hold ? s.hold->reason : Reason::kSuspendRequested;
  writer.Set(ConditionType::kSuspended, l.suspended,
             l.suspended ? suspended : (l.stop_since ? Reason::kStopping : Reason::kNotSuspended), "");
}

// Whether the operator cannot proceed until a user acts. Room for ports and quota may come by itself.
bool NeedsUser(RefusalKind kind) { return kind != RefusalKind::kQuota && kind != RefusalKind::kNoHostPorts; }

void SetStalled(Writer& writer, Reason reason, std::string message) {
  writer.Set(ConditionType::kStalled, true, reason, std::move(message));
  writer.Clear(ConditionType::kReconciling);
}

// Sets the conditions of kstatus from the others, which have the reasons: a job fails (Stalled), is not yet
// what its spec asks for (Reconciling), or is (Ready).
void SetReconciliation(const SummaryInput& s, Writer& writer) {
  const Condition& admitted = writer.Of(ConditionType::kAdmitted);
  const Refusal* refusal = RefusalOf(s.o);
  const bool active = !s.ended && !s.ledger.suspended && !s.ledger.stop_since;
  if (s.ledger.outcome == Outcome::kFailed)
    return SetStalled(writer, s.ledger.outcome_reason, s.ledger.outcome_message);
  if (!s.ended && admitted.reason == Reason::kInvalid)
    return SetStalled(writer, Reason::kInvalid, admitted.message);
  if (active && refusal != nullptr && NeedsUser(refusal->kind))
    return SetStalled(writer, admitted.reason, admitted.message);
  if (s.hold && s.hold->needs_user) return SetStalled(writer, s.hold->reason, s.hold->message);
  writer.Clear(ConditionType::kStalled);
  if (writer.Of(ConditionType::kReady).truth == Truth::kTrue)
    return writer.Clear(ConditionType::kReconciling);
  for (const ConditionType type :
       {ConditionType::kAdmitted, ConditionType::kScheduled, ConditionType::kReady}) {
    const Condition& why = writer.Of(type);
    if (why.truth == Truth::kTrue) continue;
    return writer.Set(ConditionType::kReconciling, true, why.reason, why.message);
  }
}

bool EqualIgnoringMessage(const Condition& a, const Condition& b) {
  return a.truth == b.truth && a.reason == b.reason && a.since == b.since;
}

}  // namespace

Reason ReasonOf(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kQuota:
      return Reason::kQuotaExceeded;
    case RefusalKind::kPodSecurity:
      return Reason::kPodSecurity;
    case RefusalKind::kAdmission:
      return Reason::kAdmissionRefused;
    case RefusalKind::kForbidden:
      return Reason::kForbidden;
    case RefusalKind::kInvalid:
      return Reason::kInvalidPod;
    case RefusalKind::kInvalidLabel:
      return Reason::kInvalid;
    case RefusalKind::kNameTaken:
      return Reason::kNameTaken;
    case RefusalKind::kNamespaceEnding:
      return Reason::kNamespaceEnding;
    case RefusalKind::kNoGangProvider:
      return Reason::kNoGangProvider;
    case RefusalKind::kNoHostPorts:
      return Reason::kNoHostPorts;
    case RefusalKind::kNoPriorityClass:
      return Reason::kNoPriorityClass;
    case RefusalKind::kNoTopologyLabel:
      return Reason::kNoTopologyLabel;
    case RefusalKind::kOtherScheduler:
      return Reason::kOtherScheduler;
    case RefusalKind::kNoQueue:
      return Reason::kNoQueue;
  }
  return Reason::kUnknown;
}

Display Summarize(const Observed& o, const Ledger& ledger, Time now) {
  const Display& before = o.status.display;
  SummaryInput input{o,   ledger, Count(o, ledger), PlacementOf(o, ledger), ledger.outcome != Outcome::kNone,
                     now, {}};
  // A suspension by the user comes first.
  if (!input.ended && !o.job.suspend && o.invalid.empty()) input.hold = QuotaHoldOf(o);
  Display display = before;
  display.observed_spec_generation = o.job.spec_generation;
  display.phase = PhaseOf(input);
  display.replicas = input.counts.placed;
  display.ready_replicas = input.counts.running;
  if (!input.ended) display.topology = o.spread;
  if (o.report) {
    // A new coordinator reports 0 until its first gang has formed. The recorded generation fences all earlier
    // ones, so it never decreases.
    display.gang_generation = std::max(before.gang_generation, o.report->generation);
    display.progress = {o.report->step,
                        o.report->total_steps,
                        Rounded(o.report->loss, 6),
                        Rounded(o.report->samples_per_second, 4),
                        o.report->checkpoint_step,
                        o.report->seconds_left};
    if (!o.report->transport.empty()) display.transport = o.report->transport;
    if (!o.report->facts.empty()) display.devices = DevicesOf(o.report->facts);
    if (o.report->done && o.report->done->finished) display.weights_hash = o.report->done->weights_hash;
  }
  Writer writer(display, before, now);
  SetPodConditions(input, writer);
  SetGangConditions(input, writer);
  SetAdmitted(input, writer);
  SetPreempted(input, writer);
  SetEndConditions(input, writer);
  SetReconciliation(input, writer);
  if (display != before) display.progress_at = now;
  return display;
}

Display SummarizeInvalid(const Observed& o, Time now) {
  Display display = o.status.display;
  display.observed_spec_generation = o.job.spec_generation;
  Writer writer(display, o.status.display, now);
  writer.Set(ConditionType::kAdmitted, false, Reason::kInvalid, o.invalid);
  SetStalled(writer, Reason::kInvalid, o.invalid);
  return display;
}

bool EqualIgnoringDetails(const Display& a, const Display& b) {
  return a.observed_spec_generation == b.observed_spec_generation && a.phase == b.phase &&
         a.weights_hash == b.weights_hash && a.transport == b.transport && a.devices == b.devices &&
         a.topology == b.topology && a.gang_generation == b.gang_generation &&
         std::equal(a.conditions.begin(), a.conditions.end(), b.conditions.begin(), EqualIgnoringMessage);
}

}  // namespace ringmaster::core
