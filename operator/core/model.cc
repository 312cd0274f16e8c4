// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "operator/core/model.h"

namespace ringmaster::core {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

const char* PodPhaseName(PodPhase phase) {
  switch (phase) {
    case PodPhase::kPending:
      return "Pending";
    case PodPhase::kRunning:
      return "Running";
    case PodPhase::kSucceeded:
      return "Succeeded";
    case PodPhase::kFailed:
      return "Failed";
  }
  return "?";
}

const char* GangPhaseName(rendezvous::GangPhase phase) {
  using rendezvous::GangPhase;
  switch (phase) {
    case GangPhase::kForming:
      return "Forming";
    case GangPhase::kActive:
      return "Active";
    case GangPhase::kPaused:
      return "Paused";
    case GangPhase::kStopping:
      return "Stopping";
    case GangPhase::kStopped:
      return "Stopped";
    case GangPhase::kFinished:
      return "Finished";
    case GangPhase::kFailed:
      return "Failed";
  }
  return "?";
}

}  // namespace

namespace {

// By number: names of existing pods depend on it, so it only grows.
constexpr const char* kRoleNames[] = {"", "chief", "ps", "evaluator", "launcher"};

}  // namespace

bool IsRole(const std::string& role) {
  return std::find(std::begin(kRoleNames), std::end(kRoleNames), role) != std::end(kRoleNames);
}

int32_t RankInRole(const std::string& role, int32_t index) {
  const auto* it = std::find(std::begin(kRoleNames), std::end(kRoleNames), role);
  CHECK(it != std::end(kRoleNames) && index >= 0 && index < kRanksPerRole, "role {} index {}", role, index);
  return static_cast<int32_t>(it - std::begin(kRoleNames)) * kRanksPerRole + index;
}

std::optional<RolePlace> RolePlaceOf(int32_t rank) {
  const int32_t number = rank / kRanksPerRole;
  if (rank < 0 || number >= static_cast<int32_t>(std::size(kRoleNames))) return std::nullopt;
  return RolePlace{kRoleNames[number], rank % kRanksPerRole};
}

int32_t Job::RolePods() const {
  int32_t pods = 0;
  for (const rendezvous::ProgramRole& role : policy.roles) pods += role.replicas;
  return pods;
}

bool Job::HasRank(int32_t workers, int32_t rank) const {
  const auto place = RolePlaceOf(rank);
  if (!place) return false;
  if (place->role.empty()) return rank < workers;
  const rendezvous::ProgramRole* role = policy.Find(place->role);
  return role != nullptr && place->index < role->replicas;
}

std::vector<int32_t> Job::RanksOf(int32_t workers) const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < workers; ++rank) ranks.push_back(rank);
  for (const rendezvous::ProgramRole& role : policy.roles)
    for (int32_t i = 0; i < role.replicas; ++i) ranks.push_back(RankInRole(role.name, i));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

int32_t Job::KindOf(int32_t rank) const {
  if (rank >= kRanksPerRole) return rank / kRanksPerRole * kRanksPerRole;
  return rank > 0 && first_differs ? 1 : 0;
}

std::string PodName(const std::string& job, int64_t attempt, int32_t rank) {
  const auto place = RolePlaceOf(rank);
  if (place && !place->role.empty())
    return fmt::format("{}-{}-{}-{}", job, attempt, place->role, place->index);
  return fmt::format("{}-{}-{}", job, attempt, rank);
}

const char* ActionName(const Action& action) {
  return std::visit(
      Overloaded{[](const SetStatus&) { return "SetStatus"; }, [](const CreatePod&) { return "CreatePod"; },
                 [](const DeletePod&) { return "DeletePod"; }, [](const UntrackPod&) { return "UntrackPod"; },
                 [](const SetGang&) { return "SetGang"; }, [](const DeleteJob&) { return "DeleteJob"; },
                 [](const DropGroups&) { return "DropGroups"; }, [](const TryPods&) { return "TryPods"; },
                 [](const PrepareGang&) { return "PrepareGang"; },
                 [](const ReserveRoom&) { return "ReserveRoom"; },
                 [](const ReleaseGang&) { return "ReleaseGang"; },
                 [](const MakeWorkload&) { return "MakeWorkload"; },
                 [](const AdoptWorkload&) { return "AdoptWorkload"; },
                 [](const ResizeWorkload&) { return "ResizeWorkload"; },
                 [](const SetWorkloadStatus&) { return "SetWorkloadStatus"; },
                 [](const DeleteWorkload&) { return "DeleteWorkload"; },
                 [](const ReleaseWorkload&) { return "ReleaseWorkload"; }},
      action);
}

std::string ToString(const Action& action) {
  return std::visit(
      Overloaded{
          [](const SetStatus& a) {
            const Ledger& l = a.status.ledger;
            return fmt::format("SetStatus(attempt {}, {}, charged {}, {})", l.attempt,
                               PhaseName(a.status.display.phase), l.restarts.charged,
                               ReasonName(l.outcome_reason));
          },
          [](const CreatePod& a) { return fmt::format("CreatePod({}{})", a.name, a.gated ? ", gated" : ""); },
          [](const DeletePod& a) {
            return fmt::format("DeletePod({} uid {}, grace {} ms)", a.name, a.uid, ToMs(a.grace));
          },
          [](const UntrackPod& a) { return fmt::format("UntrackPod({} uid {})", a.name, a.uid); },
          [](const SetGang& a) {
            return fmt::format("SetGang(attempt {}, {}..{}, target {}{})", a.attempt, a.min, a.max, a.target,
                               a.stop ? ", stop" : "");
          },
          [](const DeleteJob&) { return std::string("DeleteJob"); },
          [](const DropGroups&) { return std::string("DropGroups"); },
          [](const TryPods& a) { return fmt::format("TryPods(attempt {}, {} pods)", a.attempt, a.size); },
          [](const PrepareGang& a) {
            return fmt::format("PrepareGang(attempt {}, {} pods, min {})", a.attempt, a.size, a.min);
          },
          [](const ReserveRoom& a) {
            return fmt::format("ReserveRoom(attempt {}, {} pods)", a.attempt, a.ranks.size());
          },
          [](const ReleaseGang& a) {
            return fmt::format("ReleaseGang(attempt {}, {} pods)", a.attempt, a.pods.size());
          },
          [](const MakeWorkload& a) {
            std::string text =
                fmt::format("MakeWorkload({} in queue {}", a.name.empty() ? "new" : a.name, a.queue);
            for (const PodSet& set : a.pod_sets) text += fmt::format(", {} x {}", set.count, set.name);
            if (!a.replaces.empty()) text += ", replaces " + a.replaces;
            if (a.surplus > 0) text += fmt::format(", surplus {}", a.surplus);
            return text + ")";
          },
          [](const AdoptWorkload& a) { return fmt::format("AdoptWorkload({})", a.name); },
          [](const ResizeWorkload& a) {
            std::string text = "ResizeWorkload(" + a.name;
            for (const PodSet& set : a.pod_sets) text += fmt::format(", {} x {}", set.count, set.name);
            return text + ")";
          },
          [](const SetWorkloadStatus& a) {
            using Change = SetWorkloadStatus::Change;
            const std::string what = a.change == Change::kClear    ? "cleared after " + a.reason
                                     : a.change == Change::kFinish ? a.reason
                                     : a.change == Change::kReport ? PodsReadyName(a.pods_ready)
                                                                   : "gives back quota";
            return fmt::format("SetWorkloadStatus({}, {})", a.name, what);
          },
          [](const DeleteWorkload& a) { return fmt::format("DeleteWorkload({})", a.name); },
          [](const ReleaseWorkload& a) { return fmt::format("ReleaseWorkload({})", a.name); },
      },
      action);
}

std::string ToString(const Decision& decision) {
  std::string text = decision.reason;
  for (const Action& action : decision.actions) text += "; " + ToString(action);
  for (const Event& event : decision.events) text += "; event " + event.reason + ": " + event.message;
  return text;
}

std::string ToString(const Observed& observed, Time now) {
  const Ledger& l = observed.status.ledger;
  std::string text = fmt::format(
      "job {} uid {} target {} [{}..{}]{}{}{} | attempt {} charged {} row {}{}{}{}", observed.job.name,
      observed.job.uid, observed.job.Target(), observed.job.min, observed.job.max,
      observed.job.in_place ? "" : " other framework", observed.job.suspend ? " suspend" : "",
      observed.job.deleted ? " deleted" : "", l.attempt, l.restarts.charged, l.failures_in_row,
      l.stop_since ? " stopping" : "", l.suspended ? " suspended" : "",
      l.outcome == Outcome::kNone ? "" : fmt::format(" ended {}", ReasonName(l.outcome_reason)));
  if (l.not_before && *l.not_before > now) text += fmt::format(" back-off {} ms", ToMs(*l.not_before - now));
  for (const Pod& pod : observed.pods) {
    text += fmt::format(" | {} uid {} {}{}", pod.name, pod.uid, PodPhaseName(pod.phase),
                        pod.deleting() ? " deleting" : "");
    if (!pod.alive()) text += fmt::format(" {}", pod.exit_code);
    if (pod.lingers) text += " lingers";
    if (pod.lost) text += " lost";
    if (pod.tracked) text += " tracked";
    if (pod.collected) text += " collected";
    if (pod.finished) text += " finished";
    if (pod.gated) text += " gated";
    if (!pod.bound() && !pod.gated) text += " unbound";
    if (pod.unreachable_since) text += " unreachable";
    if (!pod.waiting_reason.empty()) text += " " + pod.waiting_reason;
  }
  for (const Pod& pod : observed.strays)
    text += fmt::format(" | stray {} uid {}{}", pod.name, pod.uid, pod.tracked ? " tracked" : "");
  for (const Suspect& suspect : l.suspects)
    text += fmt::format(" | suspects {} since {} ms{}", suspect.node, ToMs(now - suspect.since),
                        suspect.charge ? "" : " (uncharged)");
  if (observed.not_ready_nodes)
    for (const std::string& node : *observed.not_ready_nodes) text += " | not ready " + node;
  for (const NodeRestart& node : observed.restarted_nodes)
    text += fmt::format(" | {} started again {} ms ago", node.name, ToMs(now - node.at));
  if (!observed.fit.missing.empty()) text += " | " + observed.fit.missing;
  if (!observed.fit.preempts.empty()) text += " | preempts " + observed.fit.preempts;
  if (!observed.fit.claims_note.empty()) text += " | " + observed.fit.claims_note;
  if (observed.preempt)
    text += fmt::format(" | {} asks to keep {}", observed.preempt->by, observed.preempt->workers);
  if (const auto& preemption = observed.status.ledger.preemption)
    text += fmt::format(" | preempted to {} by {}{}", preemption->workers, preemption->by,
                        observed.preemptor_waits ? "" : ", which does not wait");
  if (observed.preflight) text += " | preflight: " + observed.preflight->message;
  if (observed.refusal) text += " | refused: " + observed.refusal->message;
  if (observed.quota) {
    text += fmt::format(" | queue '{}'{}", observed.quota->queue,
                        observed.quota->api == Quota::Api::kRead ? "" : " unread");
    for (const Workload& w : observed.quota->workloads)
      text += fmt::format(
          " | workload {}{}{}{}{}{}{}{}{} {}", w.name, w.replaces.empty() ? "" : " for " + w.replaces,
          w.held ? " held" : "", w.deleting ? " deleting" : "", w.active ? "" : " inactive",
          w.reserved ? " reserved" : "", w.admitted ? " admitted" : "", w.evicted ? " evicted" : "",
          w.finished ? " finished" : "", PodsReadyName(w.pods_ready));
    if (observed.job.granted) text += fmt::format(" | granted {}", *observed.job.granted);
  }
  for (const PodRef& w : observed.stray_workloads) text += " | stray workload " + w.name;
  if (observed.report) {
    text += fmt::format(" | gang {} gen {} step {} live {} silent {}", GangPhaseName(observed.report->phase),
                        observed.report->generation, observed.report->step, observed.report->live_pods.size(),
                        observed.report->silent_pods.size());
  }
  return text;
}

const char* ConditionName(ConditionType type) {
  switch (type) {
    case ConditionType::kAdmitted:
      return "Admitted";
    case ConditionType::kScheduled:
      return "Scheduled";
    case ConditionType::kReady:
      return "Ready";
    case ConditionType::kFabricReady:
      return "FabricReady";
    case ConditionType::kProgressing:
      return "Progressing";
    case ConditionType::kDegraded:
      return "Degraded";
    case ConditionType::kSuspended:
      return "Suspended";
    case ConditionType::kSucceeded:
      return "Succeeded";
    case ConditionType::kFailed:
      return "Failed";
    case ConditionType::kReconciling:
      return "Reconciling";
    case ConditionType::kStalled:
      return "Stalled";
    case ConditionType::kPreempted:
      return "Preempted";
  }
  return "?";
}

const char* TruthName(Truth truth) {
  switch (truth) {
    case Truth::kUnknown:
      return "Unknown";
    case Truth::kFalse:
      return "False";
    case Truth::kTrue:
      return "True";
  }
  return "?";
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kPending:
      return "Pending";
    case Phase::kStarting:
      return "Starting";
    case Phase::kRunning:
      return "Running";
    case Phase::kResizing:
      return "Resizing";
    case Phase::kRestarting:
      return "Restarting";
    case Phase::kSuspending:
      return "Suspending";
    case Phase::kSuspended:
      return "Suspended";
    case Phase::kSucceeded:
      return "Succeeded";
    case Phase::kFailed:
      return "Failed";
  }
  return "?";
}

const char* CauseName(Cause cause) {
  switch (cause) {
    case Cause::kExit:
      return "Exit";
    case Cause::kLeft:
      return "Left";
    case Cause::kHang:
      return "Hang";
    case Cause::kSilent:
      return "Silent";
    case Cause::kNodeUnreachable:
      return "NodeUnreachable";
    case Cause::kStartupTimeout:
      return "StartupTimeout";
    case Cause::kCannotStart:
      return "CannotStart";
    case Cause::kLostByNode:
      return "LostByNode";
  }
  return "?";
}

const char* NodeEffectName(NodeEffect effect) {
  return effect == NodeEffect::kNoSchedule ? "NoSchedule" : "PreferNoSchedule";
}

const char* TimeAccountingName(TimeAccounting time_accounting) {
  switch (time_accounting) {
    case TimeAccounting::kNothing:
      return "Nothing";
    case TimeAccounting::kQueue:
      return "Queue";
    case TimeAccounting::kStartup:
      return "Startup";
    case TimeAccounting::kRestart:
      return "Restart";
    case TimeAccounting::kProductive:
      return "Productive";
  }
  return "?";
}

}  // namespace ringmaster::core
