// SPDX-License-Identifier: Apache-2.0

// Which restart rule fits a failure, and how long to wait. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "operator/core/model.h"

namespace ringmaster::core {

inline constexpr int32_t kExitBadConfiguration = 64;  // no restart helps
inline constexpr int32_t kExitPeerLost = 75;          // stale attempt, lost peer: not the pod's fault

struct RuleDecision {
  RuleAction action = RuleAction::kRestart;
  bool charge = true;
  std::string rule;  // for people
  bool exclude_node = false;
  bool operator==(const RuleDecision&) const = default;
};

// The user's rules in order, first match wins; nullopt when none fits.
std::optional<RuleDecision> ApplyUserRules(const std::vector<Rule>& rules, const Failure& failure,
                                           const std::vector<std::string>& pod_conditions);

// Never empty: behind the user's rules stand ours. Exit 64 and an impossible image name fail the job; exit
// 75, a planned leave, a disruption by the cluster and a lost node are not charged, and the lost node is kept
// off for a while; everything else is charged.
RuleDecision ApplyRules(const std::vector<Rule>& rules, const Failure& failure,
                        const std::vector<std::string>& pod_conditions);

// The first failure after progress is repaired at once; then initial, twice that, ... up to max.
Duration BackoffDelay(const Job& job, int32_t failures_in_row);

// nullopt: not a refusal, the same write may be taken the next time.
std::optional<RefusalKind> ClassifyRefusal(const Error& error);

// How long to wait after the n-th refusal in a row: nobody tells us when a quota is raised.
Duration RefusalPause(int32_t in_a_row);

}  // namespace ringmaster::core
