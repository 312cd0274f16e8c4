// SPDX-License-Identifier: Apache-2.0

// KubeBackend: who makes room for the head of the queue (core/preemption.h). A plan is a request only: the
// victim's decision writes it into its ledger, which the next process reads.
#include <algorithm>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {

bool KubeBackend::PreemptorWaits(const core::Preemption& preemption) const {
  const Job by = jobs_.Get(preemption.by);
  if (!by || by->uid != preemption.by_uid || !by->spec->problem.empty() ||
      !core::MayWaitForVictims(by->Job(), by->status))
    return false;
  MutexLock lock(mutex_);
  const auto known = job_states_.find(preemption.by);
  if (known == job_states_.end() || known->second.uid != by->uid || !known->second.looked) return true;
  return known->second.wants_room || !known->second.reserved.empty();
}

void KubeBackend::ReadPreemption(const JobRecord& job, core::Observed& observed) const {
  const core::Ledger& ledger = observed.status.ledger;
  std::optional<core::Preemption> request;
  {
    MutexLock lock(mutex_);
    const JobState& state = StateOf(job);
    if (state.request_attempt == ledger.attempt) request = state.request;
    if (!observed.fit.missing.empty()) observed.fit.preempts = state.preempts;
  }
  if (request && PreemptorWaits(*request)) observed.preempt = std::move(request);
  if (ledger.preemption) observed.preemptor_waits = PreemptorWaits(*ledger.preemption);
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
  std::set<std::string> changed;
  std::set<std::string> preempted;
  std::string head;
  int32_t priority = 0;
  std::set<std::string> to_read;
  {
    MutexLock lock(mutex_);
    preempted = preempted_;
    if (const core::RoomQueue::Wait* wait = waiting_.HeadWait(); wait != nullptr && wait->preempts) {
      head = waiting_.head();
      priority = wait->standing.priority;
      holders_.Changed(head);
      to_read = holders_.TakeChanged([this] { return jobs_.Keys(); });
    } else {
      holders_.Clear();
    }
  }
  for (const std::string& name : preempted) {
    const Job job = jobs_.Get(name);
    if (job && job->status.ledger.preemption && !PreemptorWaits(*job->status.ledger.preemption))
      changed.insert(name);
  }
  std::map<std::string, std::optional<core::RoomHolder>> read;
  for (const std::string& name : to_read) read.emplace(name, HolderOf(name, head));
  const Job by = head.empty() ? nullptr : jobs_.Get(head);
  {
    MutexLock lock(mutex_);
    for (auto& [name, holder] : read) holders_.Put(name, std::move(holder));
    const core::RoomQueue::Wait* wait = waiting_.HeadWait();
    core::PreemptionPlan plan;
    // It may have changed while the lock was released.
    if (by && wait != nullptr && wait->preempts && waiting_.head() == head && !head.empty()) {
      plan = core::PlanPreemption(capacity_, head, *wait, holders_.holders());
      capacity_.SetLeaving({plan.leaving.begin(), plan.leaving.end()});
      waiting_.Refresh(capacity_);
    }
    std::set<std::string> requested;
    for (const core::Victim& victim : plan.victims) {
      const Job job = jobs_.Get(victim.job);
      if (!job) continue;
      JobState& state = StateOf(*job);
      core::Preemption request{head, by->uid, priority, victim.workers};
      if (state.request != request || state.request_attempt != job->status.ledger.attempt)
        changed.insert(victim.job);
      state.request = std::move(request);
      state.request_attempt = job->status.ledger.attempt;
      requested.insert(victim.job);
    }
    for (const std::string& name : std::exchange(requested_, requested)) {
      const auto known = job_states_.find(name);
      if (known != job_states_.end() && !requested.contains(name)) known->second.request.reset();
    }
    if (by) {
      JobState& state = StateOf(*by);
      if (state.preempts != plan.text) changed.insert(head);
      state.preempts = std::move(plan.text);
    }
  }
  for (const std::string& job : changed) Notify(job);
}

}  // namespace ringmaster::kube
