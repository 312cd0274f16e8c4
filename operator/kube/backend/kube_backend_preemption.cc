// SPDX-License-Identifier: Apache-2.0

// KubeBackend: who makes room for the head of the queue (core/planner/room_planner.h).
#include <map>
#include <utility>

#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {

void KubeBackend::ReadPreemption(const JobRecord& job, core::Observed& observed) const {
  const core::Ledger& ledger = observed.status.ledger;
  const std::string name = job.key.ToString();
  MutexLock lock(mutex_);
  if (!observed.fit.missing.empty()) observed.fit.preempts = planner_.PreemptsFor(name, job.uid);
  observed.preempt = planner_.RequestTo(name, job.uid, ledger.attempt);
  if (ledger.preemption) observed.preemptor_waits = planner_.Waits(*ledger.preemption);
}

std::optional<core::RoomHolder> KubeBackend::HolderOf(const std::string& name,
                                                      const std::string& head) const {
  const Job job = jobs_.Get(name);
  if (!job) return std::nullopt;
  std::vector<core::Pod> pods;
  for (const auto& record : pods_.Group(name))
    if (record->own->owner->uid == job->uid && !record->ended) pods.push_back(record->own->ToCore());
  core::RoomHolder holder =
      core::HolderOf(name, job->key.namespace_ + "/", job->Job(), job->status.ledger, pods);
  if (holder.staying.empty() && holder.leaving.empty() && !holder.preempted && name != head)
    return std::nullopt;
  holder.priority = PriorityClassOf(*job).value;
  holder.created = job->created.time_since_epoch().count();
  holder.preemptible = job->spec->problem.empty() && !job->spec->job.autoscaler &&
                       !HasQueue(*job) &&  // Kueue preempts those
                       GangOf(*job) == wiring::Gang::kGate;
  return holder;
}

void KubeBackend::PlanSoon() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(plan_due_, true)) return;
  }
  reflectors_.Wake();
}

void KubeBackend::PlanPreemptions() {
  std::string head;
  std::set<std::string> to_read;
  {
    MutexLock lock(mutex_);
    to_read = planner_.JobsToRead([this] { return jobs_.Keys(); });
    head = planner_.asker();
  }
  std::map<std::string, std::optional<core::RoomHolder>> read;
  for (const std::string& name : to_read) read.emplace(name, HolderOf(name, head));
  std::set<std::string> changed;
  {
    MutexLock lock(mutex_);
    changed = planner_.Plan(std::move(read));
  }
  for (const std::string& job : changed) Notify(job);
}

}  // namespace ringmaster::kube
