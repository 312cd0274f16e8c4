// SPDX-License-Identifier: Apache-2.0

// What `kubectl ringmaster status` shows, from what the API server says. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster/logged_membership.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

// One screen: phase and why, progress, goodput, the last failure, and each rank with its node, its step and
// what carries its gradients, as far as `places` knows. Ranks of one generation commit together: the step of
// the job is the step of each that is in it. `pods` as Cluster::PodsOf sorts them.
std::string StatusScreen(const Json& job, const std::vector<Json>& pods, const LoggedMemberships& memberships,
                         kube::WallTime now);

// The sentence that explains the phase: of the condition that says most about it.
std::string ExplainPhase(const Json& job);

// The condition of this type; null when there is none.
const Json& ConditionOf(const Json& job, std::string_view type);

// "Running", "Pending: 0/4 nodes are available", "ended with exit code 137 (OOMKilled)".
std::string PodState(const Json& pod);

// "3m20s" since this time of the API; empty when there is none.
std::string AgeOf(std::string_view time, kube::WallTime now);

// "default/gpt-1-2 on node-3, 3m20s ago: exit code 137 (OOMKilled): out of memory"; empty without a failure.
std::string LastFailureText(const Json& job, kube::WallTime now);

// Columns as wide as they need to be, two spaces between them; no blanks at the ends of lines.
std::string Columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace ringmaster::cli
