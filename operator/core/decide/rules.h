// SPDX-License-Identifier: Apache-2.0

// Restart rules and pauses: what a failure or a refused write leads to, and how long to wait. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/result.h"
#include "operator/core/model.h"

namespace ringmaster::core {

// What the restart rules say about one failure.
struct RuleDecision {
  RuleAction action = RuleAction::kRestart;
  bool charge = true;
  std::string rule;  // which rule decided, for messages
  bool exclude_node = false;
  // Exclude it only while other nodes have room. A lost node repels pods by its taints until it is back, and
  // then the cluster may have no other one.
  bool prefer_others = false;
  bool operator==(const RuleDecision&) const = default;
};

// Applies the user's rules in order; the first match wins. Returns nullopt when none matches.
std::optional<RuleDecision> ApplyUserRules(const std::vector<Rule>& rules, const Failure& failure,
                                           const std::vector<std::string>& pod_conditions);

// Applies the user's rules, then the defaults. By default exit 64 and an invalid image name fail the job;
// exit 75, a planned leave, a disruption by the cluster and a node that is lost or started again are not
// charged, and other nodes are preferred to that one for a while; everything else is charged.
RuleDecision ApplyRules(const std::vector<Rule>& rules, const Failure& failure,
                        const std::vector<std::string>& pod_conditions);

// Returns the pause before a restart: none for the first failure after progress, then initial, twice that,
// ... up to max.
Duration BackoffDelay(const Job& job, int32_t failures_in_row);

// Returns the kind of refusal that `error` is; nullopt when it is none, and the same write may succeed later.
std::optional<RefusalKind> ClassifyRefusal(const Error& error);

// Whether the message is about an admission webhook that did not answer.
bool IsOfBrokenWebhook(const std::string& message);

// Returns the pause after the n-th refusal in a row. Needed because nothing reports that a quota was raised.
Duration RefusalPause(int32_t in_a_row);

}  // namespace ringmaster::core
