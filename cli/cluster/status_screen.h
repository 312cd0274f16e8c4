// SPDX-License-Identifier: Apache-2.0

// The text of `kubectl ringmaster status`, and the parts of it that other commands share. Pure functions over
// API objects.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster/logged_membership.h"
#include "cli/history/busy_windows.h"
#include "cli/plot/live_screen.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

// Returns one screen: phase and reason, progress, goodput, the last failure, and a row per rank with its
// node, step and transport. `memberships` has the ranks whose logs were read; other ranks have no step and no
// transport. Ranks of one generation commit together, so each of them is at the step of the job. REQUIRES:
// `pods` is sorted as by Cluster::PodsOf.
std::string StatusScreen(const Json& job, const std::vector<Json>& pods, const LoggedMemberships& memberships,
                         kube::WallTime now);

// Returns the small screen of `status --watch`, which `ringmaster run` draws, too. `losses`: oldest first.
LiveScreen WatchScreen(const Json& job, const std::vector<Json>& pods, std::vector<double> losses,
                       const std::map<std::string, WorkerBusy>& busy);

// Returns "Reason: message" of the condition that explains the phase.
std::string ExplainPhase(const Json& job);

// Returns the condition of this type; a null value when there is none.
const Json& ConditionOf(const Json& job, std::string_view type);

// Returns "Running", "Pending: 0/4 nodes are available", "ended with exit code 137 (OOMKilled)", and so on.
std::string PodState(const Json& pod);

// Returns the age of an API timestamp, as "3m20s"; empty for an invalid timestamp.
std::string AgeOf(std::string_view time, kube::WallTime now);

// Returns "gpt-1-2 on node-3, 3m20s ago: exit code 137 (OOMKilled): out of memory", without the age if `now`
// is not set; empty without a failure.
std::string LastFailureText(const Json& job, std::optional<kube::WallTime> now);

// Aligns the columns with two spaces between them and no trailing spaces.
std::string Columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace ringmaster::cli
