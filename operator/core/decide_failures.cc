// SPDX-License-Identifier: Apache-2.0

// What went wrong since the last look, and what the rules and budgets say about it. Everything found here
// leads to exactly one status write; the repair follows from what that write says (converge.cc).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"
#include "operator/core/rules.h"

namespace ringmaster::core {
namespace {

struct Finding {
  Failure failure;
  RuleDecision verdict;
  std::string uid;
  Time ended = Time::min();  // of the pod, where that is its failure
};

constexpr const char* kInvalidImageName = "InvalidImageName";
constexpr size_t kMaxSuspects = 512;

bool Contains(const std::vector<std::string>& sorted_or_not, const std::string& value) {
  return std::find(sorted_or_not.begin(), sorted_or_not.end(), value) != sorted_or_not.end();
}

// What an agent told of its trainer's death. The kernel's killer of processes that need too much memory
// leaves no word behind, only the signal.
std::string Told(const rendezvous::FailureRecord& record) {
  constexpr int kKilled = 128 + 9;
  std::string text = record.pod;
  if (record.exit_code != 0) text += fmt::format(" ended with exit code {}", record.exit_code);
  if (record.exit_code == kKilled && record.message.empty())
    text += " (killed: if nobody did that, it had too little memory; raise the worker's limits.memory)";
  if (!record.message.empty()) text += ": " + record.message;
  return text;
}

// REQUIRES: there is a last failure. A trainer's death is known before what it died of; of several in a row
// without progress, the one before tells as much.
rendezvous::FailureRecord Explained(const Observed& o) {
  rendezvous::FailureRecord record = *o.report->last_failure;
  const auto& before = o.status.ledger.last_failure;
  if (record.exit_code != 0 || !record.message.empty() || !before) return record;
  return {before->pod, record.evidence, before->exit_code, before->message};
}

std::string Describe(const Failure& failure) {
  std::string text = failure.pod;
  switch (failure.cause) {
    case Cause::kExit:
      text += fmt::format(" ended with exit code {}", failure.exit_code);
      if (!failure.ended_reason.empty()) text += fmt::format(" ({})", failure.ended_reason);
      break;
    case Cause::kLeft:
      text += " left before the work was done";
      break;
    case Cause::kHang:
      text += " hung";
      break;
    case Cause::kSilent:
      text += " fell silent: stopped or cut off";
      break;
    case Cause::kNodeUnreachable:
      text += fmt::format(" is on the unreachable node {}", failure.node);
      break;
    case Cause::kStartupTimeout:
      text += " has shown no step in time";
      break;
    case Cause::kCannotStart:
      text += fmt::format(" cannot start on {}", failure.node);
      break;
  }
  if (!failure.message.empty()) text += ": " + failure.message;
  return text;
}

// A pod that has its node and does not run.
std::optional<Failure> ExamineStart(const Observed& o, const Pod& pod, Failure failure, Time now,
                                    Requeue& requeue) {
  failure.cause = Cause::kCannotStart;
  failure.message = WaitingText(pod);
  if (pod.waiting_reason == kInvalidImageName) return failure;
  if (o.job.startup_limit == Duration{0}) return std::nullopt;
  const Time limit = std::max({pod.placed, pod.created, o.status.ledger.attempt_since}) + o.job.startup_limit;
  if (now >= limit) {
    if (failure.message.empty())
      failure.message = fmt::format("not running {} s after it got its node (health.startupSeconds)",
                                    ToMs(o.job.startup_limit) / 1000);
    return failure;
  }
  requeue.By(limit);
  return std::nullopt;
}

using AbsentSince = std::unordered_map<std::string_view, Time>;  // since when, by uid

// nullopt: nothing is wrong with this pod, as far as can be said now.
std::optional<Failure> Examine(const Observed& o, const Pod& pod, const AbsentSince& absent, Time now,
                               Requeue& requeue) {
  Failure failure{pod.attempt,      pod.name, pod.node, pod.exit_code, Cause::kExit, pod.message,
                  pod.ended_reason, "",       now};
  if (pod.phase == PodPhase::kFailed) return failure;
  if (pod.phase == PodPhase::kSucceeded) {
    if (!o.job.native) return std::nullopt;  // its part of the work is done
    const Time believed = pod.ended.value_or(now) + kExitGuard;
    if (now < believed) {
      requeue.By(believed);
      return std::nullopt;
    }
    failure.cause = Cause::kLeft;
    return failure;
  }
  if (pod.unreachable_since) {
    const Time limit = *pod.unreachable_since + o.job.unreachable_node_limit;
    if (now >= limit) {
      failure.cause = Cause::kNodeUnreachable;
      return failure;
    }
    requeue.By(limit);
  }
  if (o.job.native && o.report && pod.phase == PodPhase::kRunning &&
      Contains(o.report->silent_pods, pod.name)) {
    // The report knows names, not incarnations: it may still mean the one before.
    const Time believed = pod.started + kSilentGuard;
    if (now >= believed) {
      // Two witnesses: the limit for nodes need not pass.
      failure.cause = IsNotReady(o, pod.node) ? Cause::kNodeUnreachable : Cause::kSilent;
      return failure;
    }
    requeue.By(believed);
  }
  if (pod.phase == PodPhase::kPending && pod.bound()) return ExamineStart(o, pod, failure, now, requeue);
  if (const auto absence = absent.find(pod.uid);
      absence != absent.end() && o.job.startup_limit > Duration{0}) {
    const Time limit = absence->second + o.job.startup_limit;
    if (now >= limit) {
      failure.cause = Cause::kSilent;
      failure.message =
          fmt::format("took no part for {} s (health.startupSeconds)", ToMs(o.job.startup_limit) / 1000);
      return failure;
    }
    requeue.By(limit);
  }
  return std::nullopt;
}

// A pod that is gone here may still be in the view of another leader, who would count it again.
void ForgetGone(const Observed& o, std::vector<std::string>& counted) {
  constexpr ptrdiff_t kMostGone = 64;
  std::unordered_set<std::string_view> existing;
  for (const Pod& pod : o.pods) existing.insert(pod.uid);
  const auto gone = [&](const std::string& uid) { return !existing.contains(uid); };
  if (std::count_if(counted.begin(), counted.end(), gone) > kMostGone) std::erase_if(counted, gone);
}

std::vector<Finding> ExaminePods(const Observed& o, Time now, Requeue& requeue) {
  std::vector<Finding> findings;
  const Ledger& ledger = o.status.ledger;
  AbsentSince absent;
  for (const Absence& absence : ledger.absent) absent.emplace(absence.uid, absence.since);
  for (const Pod& pod : o.pods) {
    // A pod that is leaving by our order is judged by that order, not by its exit code.
    if (!InGang(o.job, ledger, pod) || pod.deleting()) continue;
    if (std::binary_search(ledger.counted.begin(), ledger.counted.end(), pod.uid)) continue;
    auto failure = Examine(o, pod, absent, now, requeue);
    if (!failure) continue;
    RuleDecision verdict = ApplyRules(o.job.rules, *failure, pod.conditions);
    failure->rule = verdict.rule;
    findings.push_back({*std::move(failure), std::move(verdict), pod.uid, pod.ended.value_or(Time::min())});
  }
  return findings;
}

// A trainer that died inside a living pod is restarted by its agent: nothing to repair, but a rule of the
// user may say that the job has failed.
std::optional<Finding> ExamineTrainer(const Observed& o, Time now) {
  const Ledger& ledger = o.status.ledger;
  if (!o.job.native || !o.report || !o.report->last_failure) return std::nullopt;
  if (o.report->worker_failures <= ledger.worker_failures) return std::nullopt;
  const auto& record = *o.report->last_failure;
  if (record.evidence == "eof" || record.evidence == "silence") return std::nullopt;  // seen as its pod
  // The death is told at once; how it died, when its agent has heard that, some milliseconds later.
  if (record.evidence == "mutex" && record.exit_code == 0) return std::nullopt;
  Failure failure = FailureOf(o, record, now);
  auto verdict = ApplyUserRules(o.job.rules, failure, {});
  if (!verdict) verdict = RuleDecision{RuleAction::kRestart, false, "restarted in place by its agent"};
  failure.rule = verdict->rule;
  return Finding{std::move(failure), *std::move(verdict), ""};
}

std::optional<Finding> ExamineStartup(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (!o.job.native || ledger.stepped || !ledger.ready_since || o.job.startup_limit == Duration{0})
    return std::nullopt;
  const Time limit = *ledger.ready_since + o.job.startup_limit;
  if (now < limit) {
    requeue.By(limit);
    return std::nullopt;
  }
  Failure failure{ledger.attempt,
                  PodName(o.job.name, ledger.attempt, 0),
                  "",
                  0,
                  Cause::kStartupTimeout,
                  fmt::format("no step within {} s of all pods running (health.startupSeconds)",
                              ToMs(o.job.startup_limit) / 1000),
                  "",
                  "",
                  now};
  RuleDecision verdict = ApplyRules(o.job.rules, failure, {});
  failure.rule = verdict.rule;
  return Finding{std::move(failure), std::move(verdict), ""};
}

// Whether the silence may be its node's fault: that is not known yet.
bool UnderSuspicion(const Observed& o, const Finding& finding, size_t others) {
  return finding.failure.cause == Cause::kSilent && o.not_ready_nodes && !finding.failure.node.empty() &&
         others < kMaxSuspects;
}

// Whether the pod may have ended because a peer was lost with its node, which is not known yet: peers of
// which nobody has said that they ended as well.
bool MayBeAPeersLoss(const Observed& o, const Finding& finding) {
  if (o.job.native || !o.not_ready_nodes || finding.failure.cause != Cause::kExit ||
      !finding.verdict.charge || finding.verdict.action != RuleAction::kRestart)
    return false;
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && pod.uid != finding.uid && pod.alive() && pod.bound();
  });
}

// Whether to wait with a verdict that ends the job, until it is known whether a peer's node was lost.
bool WaitsForNodes(const Observed& o, const Finding& finding, Time now, Requeue& requeue) {
  if (!MayBeAPeersLoss(o, finding) || now >= finding.ended + kSuspicionPeriod) return false;
  requeue.By(finding.ended + kSuspicionPeriod);
  return true;
}

bool APeerIsLost(const Observed& o) {
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && pod.alive() && IsNotReady(o, pod.node);
  });
}

void CountInRow(const Observed& o, Ledger& ledger, Time now) {
  const int64_t step = o.report ? o.report->step : 0;
  const bool progressed = o.job.native
                              ? step != ledger.step_at_failure
                              : ledger.ready_since && now - *ledger.ready_since >= 2 * o.job.backoff_max;
  ledger.failures_in_row = progressed ? 1 : ledger.failures_in_row + 1;
  ledger.step_at_failure = step;
  ledger.not_before = now + BackoffDelay(o.job, ledger.failures_in_row);
}

}  // namespace

bool WaitsForImage(const Pod& pod) { return pod.waiting_reason.find("Image") != std::string::npos; }

std::string WaitingText(const Pod& pod) {
  std::string text = pod.waiting_reason;
  if (!pod.waiting_message.empty()) text += (text.empty() ? "" : ": ") + pod.waiting_message;
  if (WaitsForImage(pod)) text += "; correct the image's name, or give imagePullSecrets in workers.template";
  if (pod.waiting_reason.starts_with("CreateContainer"))  // ...ConfigError, ...Error
    text += "; make what it names, or correct workers.template";
  return text;
}

Failure FailureOf(const Observed& o, const rendezvous::FailureRecord& told, Time now) {
  Failure failure;
  failure.attempt = o.status.ledger.attempt;
  failure.pod = told.pod;
  failure.exit_code = told.exit_code;
  const bool hung = told.evidence == "hang" || told.evidence == "stopped";
  failure.cause = hung ? Cause::kHang : Cause::kExit;
  failure.message = told.message;
  failure.at = now;
  return failure;
}

std::optional<Decision> CheckFailures(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (o.report && o.report->failures_without_progress > o.job.max_without_progress) {
    Ledger next = ledger;
    if (o.report->last_failure) {
      next.last_failure = FailureOf(o, Explained(o), now);
      next.last_failure->rule = "restart.maxWithoutProgress";
    }
    return Fail(o, std::move(next), now, Reason::kNoProgress,
                fmt::format("{} failures in a row without a step in between, more than "
                            "restart.maxWithoutProgress = {}{}",
                            o.report->failures_without_progress, o.job.max_without_progress,
                            o.report->last_failure ? "; the last: " + Told(Explained(o)) : ""));
  }

  std::vector<Finding> findings = ExaminePods(o, now, requeue);
  const bool pod_lost = !findings.empty();
  bool whole_gang = pod_lost && !o.job.native;
  if (!pod_lost) {
    if (auto startup = ExamineStartup(o, now, requeue)) {
      findings.push_back(*std::move(startup));
      whole_gang = true;
    }
  }
  const bool repair = !findings.empty();
  if (auto trainer = ExamineTrainer(o, now)) findings.push_back(*std::move(trainer));
  if (findings.empty()) return std::nullopt;

  Ledger next = ledger;
  if (o.report) {
    next.worker_failures = o.report->worker_failures;
    next.restarts.without_progress = o.report->failures_without_progress;
  }
  for (const Finding& finding : findings) {
    if (finding.verdict.action != RuleAction::kFail) continue;
    next.last_failure = finding.failure;
    const bool bad =
        finding.failure.cause == Cause::kExit && finding.failure.exit_code == kExitBadConfiguration;
    return Fail(o, std::move(next), now, bad ? Reason::kBadConfiguration : Reason::kRuleMatched,
                Describe(finding.failure) + " (" + finding.verdict.rule + ")");
  }

  // With the budget spent the job ends here, unless it is a node's fault. Otherwise the drain tells
  // (decide_suspects.cc).
  const bool may_restart = ledger.restarts.charged < o.job.max_restarts || APeerIsLost(o);
  if (!may_restart && std::all_of(findings.begin(), findings.end(),
                                  [&](const Finding& f) { return WaitsForNodes(o, f, now, requeue); }))
    return std::nullopt;

  std::vector<Event> events;
  std::vector<Suspect> suspects;
  bool counted = false;
  bool charged = false;
  bool for_peers = false;
  for (const Finding& finding : findings) {
    if (finding.verdict.action == RuleAction::kIgnore) continue;
    if (!counted) next.last_failure = finding.failure;
    counted = true;
    if (finding.verdict.exclude_node) ExcludeNode(o.job, finding.failure, now, next.excluded);
    if (UnderSuspicion(o, finding, next.suspects.size() + suspects.size()))
      suspects.push_back({finding.failure.pod, finding.failure.node, now, finding.verdict.charge});
    else if (may_restart && MayBeAPeersLoss(o, finding))
      for_peers = true;
    else
      charged |= repair && finding.verdict.charge;
    events.push_back({true, CauseName(finding.failure.cause), Describe(finding.failure)});
  }
  if (!repair) return WriteLedger(o, std::move(next), now, "a trainer was lost", std::move(events));

  // What is found lost together is one restart.
  if (for_peers && !charged) next.suspects.push_back({next.last_failure->pod, "", now, true});
  for (Suspect& suspect : suspects) {
    suspect.charge &= !charged;
    next.suspects.push_back(std::move(suspect));
  }
  if (charged && next.restarts.charged >= o.job.max_restarts) {
    return Fail(
        o, std::move(next), now, Reason::kRestartBudgetSpent,
        fmt::format("{}, and restart.maxRestarts = {} is used up",
                    Describe(next.last_failure.value_or(findings.front().failure)), o.job.max_restarts));
  }
  next.restarts.total += counted ? 1 : 0;
  next.restarts.charged += charged ? 1 : 0;
  CountInRow(o, next, now);
  if (whole_gang) {
    BeginAttempt(o, next, now);
    return WriteLedger(o, std::move(next), now, "the whole gang restarts", std::move(events));
  }
  ForgetGone(o, next.counted);
  for (const Finding& finding : findings)
    if (!finding.uid.empty()) next.counted.push_back(finding.uid);
  std::sort(next.counted.begin(), next.counted.end());
  return WriteLedger(o, std::move(next), now, "lost pods are replaced", std::move(events));
}

}  // namespace ringmaster::core
