// SPDX-License-Identifier: Apache-2.0

#include "operator/core/decide/rules.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>

namespace ringmaster::core {

namespace {

constexpr const char* kDisruptionTarget = "DisruptionTarget";  // evicted, preempted, drained

// Takes time linear in the message for every pattern. Validation refuses invalid patterns; here they match
// nothing.
bool MessageMatches(const std::string& pattern, const std::string& message) {
  const re2::RE2 regex(pattern, re2::RE2::Quiet);
  return regex.ok() && re2::RE2::PartialMatch(message, regex);
}

bool IsOfNode(Cause cause) { return cause == Cause::kNodeUnreachable || cause == Cause::kLostByNode; }

bool Matches(const Rule& rule, const Failure& failure, const std::vector<std::string>& pod_conditions) {
  if (!rule.exit_codes.empty() &&
      std::find(rule.exit_codes.begin(), rule.exit_codes.end(), failure.exit_code) == rule.exit_codes.end())
    return false;
  if (rule.node_unreachable && *rule.node_unreachable != IsOfNode(failure.cause)) return false;
  const bool hang = failure.cause == Cause::kHang || failure.cause == Cause::kSilent ||
                    failure.cause == Cause::kStartupTimeout;
  if (rule.hang && *rule.hang != hang) return false;
  if (!rule.pod_condition.empty() &&
      std::find(pod_conditions.begin(), pod_conditions.end(), rule.pod_condition) == pod_conditions.end())
    return false;
  return rule.message_regex.empty() || MessageMatches(rule.message_regex, failure.message);
}

}  // namespace

std::optional<RuleDecision> ApplyUserRules(const std::vector<Rule>& rules, const Failure& failure,
                                           const std::vector<std::string>& pod_conditions) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (Matches(rules[i], failure, pod_conditions))
      return RuleDecision{rules[i].action, rules[i].charge, fmt::format("restart.rules[{}]", i),
                          rules[i].exclude_node};
  }
  return std::nullopt;
}

RuleDecision ApplyRules(const std::vector<Rule>& rules, const Failure& failure,
                        const std::vector<std::string>& pod_conditions) {
  if (auto ruling = ApplyUserRules(rules, failure, pod_conditions)) return *ruling;
  if (failure.cause == Cause::kExit && failure.exit_code == kExitBadInput)
    return {RuleAction::kFail, true, "default: exit code 64 is a bad configuration"};
  if (failure.cause == Cause::kExit && failure.exit_code == kExitStale)
    return {RuleAction::kRestart, false, "default: exit code 75 is not the pod's fault"};
  if (failure.cause == Cause::kLeft) return {RuleAction::kRestart, false, "default: planned leave"};
  if (IsOfNode(failure.cause)) return {RuleAction::kRestart, false, "default: node lost", true, true};
  if (failure.cause == Cause::kCannotStart && failure.message.starts_with("InvalidImageName"))
    return {RuleAction::kFail, true, "default: invalid image name"};
  if (std::find(pod_conditions.begin(), pod_conditions.end(), kDisruptionTarget) != pod_conditions.end())
    return {RuleAction::kRestart, false, "default: disrupted by the cluster"};
  return {RuleAction::kRestart, true, "default"};
}

Duration BackoffDelay(const Job& job, int32_t failures_in_row) {
  if (failures_in_row <= 1) return Duration{0};
  Duration delay = job.backoff_initial;
  for (int32_t i = 2; i < failures_in_row && delay < job.backoff_max; ++i) delay *= 2;
  return std::min(job.backoff_max, delay);
}

// ---- refusals

namespace {

constexpr Duration kFirstPause = seconds(1);
constexpr Duration kLastPause = seconds(60);

bool Says(const Error& error, const char* words) { return error.message.find(words) != std::string::npos; }

}  // namespace

bool IsOfBrokenWebhook(const std::string& message) {
  return message.find("failed calling webhook") != std::string::npos;
}

// The API server uses one status code for most refusals; only the message says which kind it is.
std::optional<RefusalKind> ClassifyRefusal(const Error& error) {
  if (error.code == Code::kInvalid) return RefusalKind::kInvalid;
  if (error.code == Code::kExhausted) return RefusalKind::kNoHostPorts;
  // The server reports a webhook that does not answer as its own error. Nothing was stored.
  if (IsOfBrokenWebhook(error.message)) return RefusalKind::kAdmission;
  if (error.code != Code::kForbidden) return std::nullopt;
  if (Says(error, "exceeded quota") || Says(error, "failed quota") || Says(error, "insufficient quota"))
    return RefusalKind::kQuota;
  if (Says(error, "violates PodSecurity")) return RefusalKind::kPodSecurity;
  if (Says(error, "being terminated")) return RefusalKind::kNamespaceEnding;
  if (Says(error, "admission webhook") || Says(error, "ValidatingAdmissionPolicy") ||
      Says(error, "LimitRange") || Says(error, "per Container is") || Says(error, "per Pod is"))
    return RefusalKind::kAdmission;
  return RefusalKind::kForbidden;
}

Duration RefusalPause(int32_t in_a_row) {
  Duration pause = kFirstPause;
  for (int32_t i = 1; i < in_a_row && pause < kLastPause; ++i) pause *= 2;
  return std::min(pause, kLastPause);
}

}  // namespace ringmaster::core
