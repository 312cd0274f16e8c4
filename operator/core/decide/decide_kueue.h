// SPDX-License-Identifier: Apache-2.0

// What Kueue's admission permits a job to do, and the job's answers. Internal to operator/core, except for
// HasStarted and HeldByQuota. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/decide/decide_steps.h"

namespace ringmaster::core {

// Whether pods of the job may exist by its ledger.
bool HasStarted(const Ledger& ledger);

// Whether the job may have no pods now because of Kueue. Never for a job without a queue. Without Kueue's
// API, or before its objects are known, a job that runs continues and another one does not start.
bool HeldByQuota(const Observed& observed);

struct QuotaHold {
  Reason reason = Reason::kWaitingForQuota;
  std::string message;
  bool needs_user = false;
};
// Why the job is held, for people. nullopt: it is not.
std::optional<QuotaHold> QuotaHoldOf(const Observed& observed);

// Decides about a job that Kueue runs on another cluster: asks for its quota, and leaves everything else to
// that cluster. Kueue copies its status from there.
Decision WatchRemote(const Observed& observed, Time now);

// Writes down what is missing before the job can start, and asks Kueue for it. REQUIRES: the job has no pods
// and none of this process's requests creates one.
Decision AwaitQuota(const Observed& observed, Time now, Requeue& requeue);

// Appends what the Workload of a job without pods needs: to be created, updated, cleared or deleted. Returns
// true if that takes an action.
bool SettleWorkload(const Observed& observed, Time now, std::vector<Action>& actions, Requeue& requeue);

// How a job that runs waits for the quota of more workers, for people; empty: it does not.
std::string GrowthText(const Observed& observed);

// Appends what Kueue must know about a job that runs: whether its pods are ready, which quota it does not
// use, and how many more workers it asks for. Such reports come after everything that repairs the job.
void ReportToQuota(const Observed& observed, Time now, std::vector<Action>& actions, Requeue& requeue);

// Appends what ends the Workload of a job that has ended.
void FinishWorkload(const Observed& observed, std::vector<Action>& actions);

// Appends what lets go of the Workloads of a job that is deleted.
void ReleaseWorkloads(const Observed& observed, std::vector<Action>& actions);

}  // namespace ringmaster::core
