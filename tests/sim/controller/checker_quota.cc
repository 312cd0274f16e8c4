// SPDX-License-Identifier: Apache-2.0

// Checker: no pod without Kueue's quota, and none of it given up while pods exist.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/controller/checker.h"

namespace ringmaster::sim {

using control::Key;

core::Observed Checker::WithQuota(const Key& key, const JobTruth& job) const {
  core::Observed o;
  o.job = job.job;
  o.status = job.status;
  o.quota.emplace();
  o.quota->api = core::Quota::Api::kRead;
  o.quota->queue = job.queue;
  for (const WorkloadTruth& w : world_.WorkloadsOf(key)) o.quota->workloads.push_back(w.workload);
  return o;
}

// Another job may get this quota from now on. The job's first workers have the quota of its other Workloads.
// Kueue counts the quota of an evicted Workload until the operator clears it, so an eviction that the
// operator has not observed yet takes nothing from the workers.
void Checker::CheckQuotaFreed(const Key& key, const WorkloadTruth& freed) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr || job->job.uid != freed.owner_uid || Stray(*job)) return;
  if (job->status.ended() || job->job.deleted) return;
  int32_t kept = 0, more = 0;
  if (freed.workload.surplus > 0) {
    for (const WorkloadTruth& other : world_.WorkloadsOf(key)) {
      const core::Workload& w = other.workload;
      if (!w.reserved || w.name == freed.workload.name) continue;
      if (w.surplus == 0) kept = std::max(kept, core::WorkersGranted({}, w));
      if (w.surplus > 0 && w.admitted && !w.finished && !w.deleting) more += core::WorkersGranted({}, w);
    }
    kept += more;
  }
  for (const auto& [name, p] : job->pods)
    Require(strays_.contains(p.pod.uid) || p.pod.rank < kept, "I23",
            "the quota is given up while there is " + name);
}

// Returns how many workers may exist; 0: Kueue has admitted none.
int32_t Checker::WorkersAdmitted(const core::Observed& o) {
  const core::Quota& quota = *o.quota;
  int32_t most = 0;
  for (const core::Workload& w : quota.workloads) {
    if (w.surplus > 0 || !w.reserved || w.evicted || w.finished || w.deleting) continue;
    if (w.admitted) most = std::max(most, core::WorkersGranted(o, w));
    // While its checks are pending, the quota of the slice that it replaces counts.
    for (const core::Workload& old : quota.workloads)
      if (!w.admitted && old.name == w.replaces && old.admitted)
        most = std::max(most, std::min(core::WorkersGranted(o, w), core::WorkersGranted(o, old)));
  }
  return most + (most > 0 ? core::SurplusGranted(o) : 0);
}

void Checker::CheckAdmitted(const core::Observed& o, const core::CreatePod& create) {
  const int32_t granted = o.quota ? WorkersAdmitted(o) : 0;
  Require(!o.quota || o.quota->queue.empty() || granted > 0, "I22",
          create.name + " is created without an admission");
  const auto place = core::RolePlaceOf(create.rank);
  Require(granted == 0 || !place || !place->role.empty() || place->index < granted, "I22",
          fmt::format("{} is created, and {} workers are admitted", create.name, granted));
}

}  // namespace ringmaster::sim
