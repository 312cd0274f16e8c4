// SPDX-License-Identifier: Apache-2.0

// Checker: no pod without Kueue's quota, and none of it given up while pods exist.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/controller/checker.h"

namespace ringmaster::sim {

using control::Key;

// Another Workload may get the quota from now on.
void Checker::CheckQuotaFreed(const Key& key, const std::string& job_uid) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr || job->job.uid != job_uid || Stray(*job)) return;
  if (job->status.ended() || job->job.deleted) return;
  for (const auto& [name, p] : job->pods)
    Require(strays_.contains(p.pod.uid), "I23", "the quota is given up while there is " + name);
}

// Returns how many workers may exist; 0: Kueue has admitted none.
int32_t Checker::WorkersAdmitted(const core::Quota& quota) {
  int32_t most = 0;
  for (const core::Workload& w : quota.workloads) {
    if (!w.reserved || w.evicted || w.finished || w.deleting) continue;
    if (w.admitted) most = std::max(most, core::WorkersGranted(w));
    // While its checks are pending, the quota of the slice that it replaces counts.
    for (const core::Workload& old : quota.workloads)
      if (!w.admitted && old.name == w.replaces && old.admitted)
        most = std::max(most, std::min(core::WorkersGranted(w), core::WorkersGranted(old)));
  }
  return most;
}

void Checker::CheckAdmitted(const core::Observed& o, const core::CreatePod& create) {
  const int32_t granted = o.quota ? WorkersAdmitted(*o.quota) : 0;
  Require(!o.quota || o.quota->queue.empty() || granted > 0, "I22",
          create.name + " is created without an admission");
  const auto place = core::RolePlaceOf(create.rank);
  Require(granted == 0 || !place || !place->role.empty() || place->index < granted, "I22",
          fmt::format("{} is created, and {} workers are admitted", create.name, granted));
}

}  // namespace ringmaster::sim
