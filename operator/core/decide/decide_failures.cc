// SPDX-License-Identifier: Apache-2.0

// Failures since the last decision: find them, apply the restart rules, then restart or fail. All findings
// lead to one status write; Converge (decide_pods.cc) repairs the gang from what that write says.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/rules.h"

namespace ringmaster::core {
namespace {

struct Finding {
  Failure failure;
  RuleDecision ruling;
  std::string uid;           // of the failed pod; empty when a trainer or the whole gang failed
  Time ended = Time::min();  // when the pod ended, if it did
};

constexpr const char* kInvalidImageName = "InvalidImageName";
constexpr size_t kMaxSuspects = 512;

bool Contains(const std::vector<std::string>& sorted_or_not, const std::string& value) {
  return std::find(sorted_or_not.begin(), sorted_or_not.end(), value) != sorted_or_not.end();
}

// ---- descriptions for people

// Describes the end of a trainer that its agent reported. The kernel's out-of-memory killer leaves no
// message, only the signal.
std::string DescribeTrainer(const rendezvous::FailureRecord& record) {
  constexpr int kKilled = 128 + 9;
  std::string text = record.pod;
  if (record.exit_code != 0) text += fmt::format(" ended with exit code {}", record.exit_code);
  if (record.exit_code == kKilled && record.message.empty())
    text +=
        " (killed: unless this was on purpose, it had too little memory; raise the worker's limits.memory)";
  if (!record.message.empty()) text += ": " + record.message;
  return text;
}

// Returns the newest failure that has an explanation. A trainer's end is reported before its exit code; the
// failure before it, in a row without progress, is as informative. REQUIRES: the report has a last failure.
rendezvous::FailureRecord ExplainedFailure(const Observed& o) {
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
      text += " is unresponsive: stopped or cut off";
      break;
    case Cause::kNodeUnreachable:
      text += fmt::format(" is on the unreachable node {}", failure.node);
      break;
    case Cause::kStartupTimeout:
      text += " made no step in time";
      break;
    case Cause::kCannotStart:
      text += fmt::format(" cannot start on {}", failure.node);
      break;
    case Cause::kLostByNode:
      text +=
          fmt::format(" was lost by its node {}, which started again or lost the container", failure.node);
      break;
  }
  if (!failure.message.empty()) text += ": " + failure.message;
  return text;
}

// ---- examination: what failed

// Returns what a failure to start in time adds to its message.
std::string Unreachable(const Observed& o) {
  return o.report && !o.report->unreachable.empty() ? ": " + o.report->unreachable : "";
}

// Whether the coordinator hears the pod's agent: then its node runs, though the API server does not hear the
// kubelet. An outage of the control plane makes all nodes unreachable, and the gang trains on. A pod that the
// kubelet could not report may run, too.
bool IsHeard(const Observed& o, const Pod& pod) {
  return o.job.in_place && o.report &&
         std::binary_search(o.report->heard_pods.begin(), o.report->heard_pods.end(), pod.name);
}

// Examines a pod that has a node and does not run.
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

// Returns the pod's failure; nullopt when none is known now.
std::optional<Failure> Examine(const Observed& o, const Pod& pod, const AbsentSince& absent, Time now,
                               Requeue& requeue) {
  Failure failure{pod.attempt,      pod.name, pod.node, pod.exit_code, Cause::kExit, pod.message,
                  pod.ended_reason, "",       now};
  if (pod.phase == PodPhase::kFailed) {
    if (pod.lost) failure.cause = Cause::kLostByNode;
    return failure;
  }
  if (pod.phase == PodPhase::kSucceeded) {
    if (!o.job.in_place) return std::nullopt;  // its part of the work is done
    const Time believed = pod.ended.value_or(now) + kExitGuard;
    if (now < believed) {
      requeue.By(believed);
      return std::nullopt;
    }
    failure.cause = Cause::kLeft;
    return failure;
  }
  if (pod.unreachable_since && !IsHeard(o, pod)) {
    const Time limit = *pod.unreachable_since + o.job.unreachable_node_limit;
    if (now >= limit) {
      failure.cause = Cause::kNodeUnreachable;
      return failure;
    }
    requeue.By(limit);
  }
  if (o.job.in_place && o.report && pod.phase == PodPhase::kRunning &&
      Contains(o.report->silent_pods, pod.name)) {
    // The report has names, not uids: it may still mean the pod's predecessor.
    const Time believed = pod.started + kSilentGuard;
    if (now >= believed) {
      // The node is not ready, too, so the time limit for nodes need not pass.
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
      failure.message = fmt::format("took no part in the gang for {} s (health.startupSeconds){}",
                                    ToMs(o.job.startup_limit) / 1000, Unreachable(o));
      return failure;
    }
    requeue.By(limit);
  }
  return std::nullopt;
}

// Forgets counted pods that are gone, once there are many. The next leader's view may still have them, and it
// would count a forgotten pod again.
void ForgetGone(const Observed& o, std::vector<std::string>& counted) {
  constexpr ptrdiff_t kMostGone = 64;
  std::unordered_set<std::string_view> existing;
  for (const Pod& pod : o.pods) existing.insert(pod.uid);
  const auto gone = [&](const std::string& uid) { return !existing.contains(uid); };
  if (std::count_if(counted.begin(), counted.end(), gone) > kMostGone) std::erase_if(counted, gone);
}

RuleDecision RulingFor(const Observed& o, const Failure& failure, const Pod& pod) {
  const bool refused = o.job.in_place && failure.cause == Cause::kExit && failure.exit_code == kExitRefused;
  if (!refused) return ApplyRules(o.job.rules, failure, pod.conditions);
  return ApplyUserRules(o.job.rules, failure, pod.conditions)
      .value_or(RuleDecision{RuleAction::kRestart, false,
                             "default: exit code 76 is a worker that does not fit the others", true});
}

std::vector<Finding> ExaminePods(const Observed& o, Time now, Requeue& requeue) {
  std::vector<Finding> findings;
  const Ledger& ledger = o.status.ledger;
  AbsentSince absent;
  for (const Absence& absence : ledger.absent) absent.emplace(absence.uid, absence.since);
  for (const Pod& pod : o.pods) {
    // The exit code of a pod that was deleted while it ran is not a failure.
    if (!InGang(o.job, ledger, pod) || pod.interrupted()) continue;
    if (std::binary_search(ledger.counted.begin(), ledger.counted.end(), pod.uid)) continue;
    auto failure = Examine(o, pod, absent, now, requeue);
    if (!failure) continue;
    RuleDecision ruling = RulingFor(o, *failure, pod);
    failure->rule = ruling.rule;
    findings.push_back({*std::move(failure), std::move(ruling), pod.uid, pod.ended.value_or(Time::min())});
  }
  return findings;
}

// Examines a trainer that ended while its pod lives, or a program that starts again alone. The agent starts
// it again, so there is nothing to repair, but a rule of the user may fail a job with trainers. Of programs,
// what a rule is about is an incident.
std::optional<Finding> ExamineTrainer(const Observed& o, Time now) {
  const Ledger& ledger = o.status.ledger;
  if (!o.job.in_place || !o.report || !o.report->last_failure) return std::nullopt;
  if (o.report->worker_failures <= ledger.worker_failures) return std::nullopt;
  const auto& record = *o.report->last_failure;
  if (record.evidence == "eof" || record.evidence == "silence") return std::nullopt;  // examined as a pod
  // The other workers report the end at once; its agent reports the exit code some milliseconds later.
  if (record.evidence == "mutex" && record.exit_code == 0 && record.message.empty()) return std::nullopt;
  if (o.report->incident && o.report->incident->generation > ledger.incident) return std::nullopt;
  Failure failure = FailureOf(o, record, now);
  std::optional<RuleDecision> ruling;
  if (!o.job.programs) ruling = ApplyUserRules(o.job.rules, failure, {});
  if (!ruling) ruling = RuleDecision{RuleAction::kRestart, false, "restarted in place by its agent"};
  failure.rule = ruling->rule;
  return Finding{std::move(failure), *std::move(ruling), ""};
}

// Examines the failure that ended an incarnation of programs. Their agents start the next one when it is
// counted.
std::optional<Finding> ExamineIncident(const Observed& o, Time now) {
  if (!o.job.programs || !o.report || !o.report->incident) return std::nullopt;
  if (o.report->incident->generation <= o.status.ledger.incident) return std::nullopt;
  Failure failure = FailureOf(o, o.report->incident->root, now);
  std::vector<std::string> conditions;
  for (const Pod& pod : o.pods) {
    if (!InGang(o.job, o.status.ledger, pod) || pod.name != failure.pod) continue;
    failure.node = pod.node;
    conditions = pod.conditions;
  }
  RuleDecision ruling = ApplyRules(o.job.rules, failure, conditions);
  failure.rule = ruling.rule;
  return Finding{std::move(failure), std::move(ruling), ""};
}

std::optional<Finding> ExamineStartup(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (!o.job.in_place || ledger.stepped || !ledger.ready_since || o.job.startup_limit == Duration{0})
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
                  fmt::format("no step within {} s of all pods running (health.startupSeconds){}",
                              ToMs(o.job.startup_limit) / 1000, Unreachable(o)),
                  "",
                  "",
                  now};
  RuleDecision ruling = ApplyRules(o.job.rules, failure, {});
  failure.rule = ruling.rule;
  return Finding{std::move(failure), std::move(ruling), ""};
}

// ---- suspicion: what a lost node may explain

// Whether a lost node may explain the finding, which is not known yet.
bool IsSuspect(const Observed& o, const Finding& finding, size_t others) {
  return finding.failure.cause == Cause::kSilent && o.not_ready_nodes && !finding.failure.node.empty() &&
         others < kMaxSuspects;
}

// Whether the loss of a peer with its node may explain the finding, which is not known yet: peers on other
// nodes still seem to run.
bool MayFollowPeerLoss(const Observed& o, const Finding& finding) {
  if (o.job.in_place || !o.not_ready_nodes || finding.failure.cause != Cause::kExit ||
      !finding.ruling.charge || finding.ruling.action != RuleAction::kRestart)
    return false;
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && pod.uid != finding.uid && pod.alive() && pod.bound();
  });
}

// Whether to put off a decision that ends the job until the state of the peers' nodes is known.
bool WaitsForNodes(const Observed& o, const Finding& finding, Time now, Requeue& requeue) {
  if (!MayFollowPeerLoss(o, finding) || now >= finding.ended + kSuspicionPeriod) return false;
  requeue.By(finding.ended + kSuspicionPeriod);
  return true;
}

bool PeerNodeLost(const Observed& o) {
  return std::any_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && (pod.lost || (pod.alive() && IsNotReady(o, pod.node)));
  });
}

void CountInRow(const Observed& o, Ledger& ledger, Time now) {
  const int64_t step = o.report ? o.report->step : 0;
  // The coordinator knows better than steps whether programs progress, because they need not report any.
  const bool progressed = o.job.programs && o.report ? o.report->failures_without_progress <= 1
                          : o.job.in_place
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
    text += "; create the object that the message names, or correct workers.template";
  return text;
}

Failure FailureOf(const Observed& o, const rendezvous::FailureRecord& record, Time now) {
  Failure failure;
  failure.attempt = o.status.ledger.attempt;
  failure.pod = record.pod;
  failure.exit_code = record.exit_code;
  const bool hung = record.evidence == "hang" || record.evidence == "stopped";
  failure.cause = hung ? Cause::kHang : Cause::kExit;
  failure.message = record.message;
  failure.at = now;
  return failure;
}

// ---- decision: fail, restart, or wait

namespace {

std::optional<Decision> CheckProgress(const Observed& o, Time now) {
  if (!o.report || o.report->failures_without_progress <= o.job.max_without_progress) return std::nullopt;
  Ledger next = o.status.ledger;
  if (o.report->last_failure) {
    next.last_failure = FailureOf(o, ExplainedFailure(o), now);
    next.last_failure->rule = "restart.maxWithoutProgress";
  }
  return Fail(
      o, std::move(next), now, Reason::kNoProgress,
      fmt::format("{} failures in a row without a step in between, more than "
                  "restart.maxWithoutProgress = {}{}",
                  o.report->failures_without_progress, o.job.max_without_progress,
                  o.report->last_failure ? "; the last: " + DescribeTrainer(ExplainedFailure(o)) : ""));
}

struct Findings {
  std::vector<Finding> all;
  bool repair = false;      // one of them needs a pod or the gang replaced
  bool whole_gang = false;  // all pods must be replaced
  bool incident = false;    // programs start again in place
};

Findings FindFailures(const Observed& o, Time now, Requeue& requeue) {
  Findings findings;
  findings.all = ExaminePods(o, now, requeue);
  findings.whole_gang = !findings.all.empty() && !o.job.in_place;
  if (findings.all.empty()) {
    if (auto startup = ExamineStartup(o, now, requeue)) {
      findings.all.push_back(*std::move(startup));
      findings.whole_gang = true;
    }
  }
  if (auto incident = ExamineIncident(o, now)) {
    findings.all.push_back(*std::move(incident));
    findings.incident = true;
  }
  findings.repair = !findings.all.empty();
  if (auto trainer = ExamineTrainer(o, now)) findings.all.push_back(*std::move(trainer));
  return findings;
}

// Returns the ledger with the report's counters.
Ledger WithReport(const Observed& o) {
  Ledger next = o.status.ledger;
  if (o.report) {
    next.worker_failures = o.report->worker_failures;
    next.restarts.without_progress = o.report->failures_without_progress;
    if (o.report->incident) next.incident = std::max(next.incident, o.report->incident->generation);
  }
  return next;
}

// Fails the job when a rule says so.
std::optional<Decision> FailByRule(const Observed& o, const Findings& findings, Time now) {
  for (const Finding& finding : findings.all) {
    if (finding.ruling.action != RuleAction::kFail) continue;
    Ledger next = WithReport(o);
    next.last_failure = finding.failure;
    const bool bad = finding.failure.cause == Cause::kExit && finding.failure.exit_code == kExitBadInput;
    return Fail(o, std::move(next), now, bad ? Reason::kBadConfiguration : Reason::kRuleMatched,
                Describe(finding.failure) + " (" + finding.ruling.rule + ")");
  }
  return std::nullopt;
}

// What the findings add to the ledger.
struct Tally {
  bool counted = false;  // a finding is not ignored
  bool charged = false;
  std::vector<Event> events;
};

// Adds the findings to `next`: last failure, excluded nodes, suspects.
Tally CountFindings(const Observed& o, const Findings& findings, bool may_restart, Time now, Ledger& next) {
  Tally tally;
  std::vector<Suspect> suspects;
  bool suspect_peers = false;
  for (const Finding& finding : findings.all) {
    if (finding.ruling.action == RuleAction::kIgnore) continue;
    if (!tally.counted) next.last_failure = finding.failure;
    tally.counted = true;
    ExcludeNode(o.job, finding.failure, finding.ruling, now, next.excluded);
    if (IsSuspect(o, finding, next.suspects.size() + suspects.size()))
      suspects.push_back({finding.failure.pod, finding.failure.node, now, finding.ruling.charge});
    else if (may_restart && MayFollowPeerLoss(o, finding))
      suspect_peers = true;
    else
      tally.charged |= findings.repair && finding.ruling.charge;
    tally.events.push_back({true, CauseName(finding.failure.cause), Describe(finding.failure)});
  }
  if (!findings.repair) return tally;
  // Failures that are found together count as one restart, so a suspect is not charged on top of this one.
  if (suspect_peers && !tally.charged) next.suspects.push_back({next.last_failure->pod, "", now, true});
  for (Suspect& suspect : suspects) {
    suspect.charge &= !tally.charged;
    next.suspects.push_back(std::move(suspect));
  }
  return tally;
}

// Writes the restart of the whole gang, or the replacement of the failed pods.
Decision Restart(const Observed& o, const Findings& findings, Tally tally, Ledger next, Time now) {
  next.restarts.total += tally.counted ? 1 : 0;
  next.restarts.charged += tally.charged ? 1 : 0;
  CountInRow(o, next, now);
  if (findings.whole_gang) {
    BeginAttempt(o, next, now);
    return WriteLedger(o, std::move(next), now, "the whole gang restarts", std::move(tally.events));
  }
  ForgetGone(o, next.counted);
  for (const Finding& finding : findings.all)
    if (!finding.uid.empty()) next.counted.push_back(finding.uid);
  std::sort(next.counted.begin(), next.counted.end());
  return WriteLedger(o, std::move(next), now,
                     findings.incident ? "the programs start again" : "lost pods are replaced",
                     std::move(tally.events));
}

}  // namespace

std::optional<Decision> CheckFailures(const Observed& o, Time now, Requeue& requeue) {
  if (auto decision = CheckProgress(o, now)) return decision;
  const Findings findings = FindFailures(o, now, requeue);
  if (findings.all.empty()) return std::nullopt;
  if (auto decision = FailByRule(o, findings, now)) return decision;

  // With the budget spent the job ends here, unless a lost node explains the failures (decide_suspects.cc).
  const bool may_restart = o.status.ledger.restarts.charged < o.job.max_restarts || PeerNodeLost(o);
  if (!may_restart && std::all_of(findings.all.begin(), findings.all.end(),
                                  [&](const Finding& f) { return WaitsForNodes(o, f, now, requeue); }))
    return std::nullopt;

  Ledger next = WithReport(o);
  Tally tally = CountFindings(o, findings, may_restart, now, next);
  if (!findings.repair)
    return WriteLedger(o, std::move(next), now, "a trainer was lost", std::move(tally.events));
  if (tally.charged && next.restarts.charged >= o.job.max_restarts) {
    const std::string last = Describe(next.last_failure.value_or(findings.all.front().failure));
    return Fail(o, std::move(next), now, Reason::kRestartBudgetSpent,
                fmt::format("{}, and restart.maxRestarts = {} is used up", last, o.job.max_restarts));
  }
  return Restart(o, findings, std::move(tally), std::move(next), now);
}

}  // namespace ringmaster::core
