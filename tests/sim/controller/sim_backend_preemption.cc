// SPDX-License-Identifier: Apache-2.0

// SimBackend: who makes room for the head of the queue, as the backend for a cluster plans it.
#include <algorithm>
#include <utility>

#include "operator/core/queue/preemption.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::sim {

using control::Key;

namespace {

constexpr Duration kPlanPause = milliseconds(200);

}  // namespace

bool SimBackend::PreemptorWaits(const core::Preemption& preemption) const {
  for (const auto& [key, cached] : cache_) {
    if (key.ToString() != preemption.by || !cached.job || cached.job->job.uid != preemption.by_uid) continue;
    if (!core::MayWaitForVictims(cached.job->job, cached.job->status)) return false;
    return !cached.looked || cached.wants_room || !cached.reserved.empty();
  }
  return false;
}

void SimBackend::PlanSoon() const {
  if (std::exchange(plan_due_, true)) return;
  scheduler_.After(kPlanPause, [this, process = process_] {
    if (process == process_) PlanPreemptions();
  });
}

void SimBackend::PlanPreemptions() const {
  plan_due_ = false;
  const core::RoomQueue::Wait* wait = waiting_.HeadWait();
  const std::string head = waiting_.head();
  std::vector<core::RoomHolder> holders;
  std::string head_uid;
  for (const auto& [key, cached] : cache_) {
    if (!cached.job) continue;
    if (key.ToString() == head) head_uid = cached.job->job.uid;
    core::Job job = cached.job->job;
    job.allowed = core::AllowedWorkers(cached.job->status.ledger);
    std::vector<core::Pod> pods;
    for (const auto& [name, pod] : cached.pods)
      if (cached.owners.at(pod.uid) == job.uid) pods.push_back(pod);
    core::RoomHolder& holder = holders.emplace_back(
        core::HolderOf(key.ToString(), key.ToString() + "/", job, cached.job->status.ledger, pods));
    holder.priority = options_.preempts_equals && key.ToString() != head ? INT32_MIN : PriorityOf(key);
    holder.preemptible =
        !job.autoscaler && !HasQueue(cached) && world_.provider() == core::GangProvider::kGate;
  }
  core::PreemptionPlan plan;
  if (wait != nullptr && !world_.nodes().empty()) {
    core::RoomQueue::Wait asked = *wait;
    if (options_.preempts_in_vain) {
      const core::Capacity::WithoutClaim lifted(capacity_);
      asked.pods = std::min(asked.pods, capacity_.RoomFor(asked.shape, asked.pods) + 1);
      for (core::RoomHolder& holder : holders) holder.missing = 0;
    }
    plan = core::PlanPreemption(capacity_, head, asked, holders);
    capacity_.SetLeaving({plan.leaving.begin(), plan.leaving.end()});
    waiting_.Refresh(capacity_);
  }
  std::vector<Key> changed;
  for (const auto& [key, cached] : cache_) {
    const std::string name = key.ToString();
    std::optional<core::Preemption> request;
    for (const core::Victim& victim : plan.victims)
      if (victim.job == name)
        request = core::Preemption{head, head_uid, PriorityOf(Key::Parse(head)), victim.workers};
    std::string preempts = name == head ? plan.text : std::string();
    const bool over = cached.job && cached.job->status.ledger.preemption &&
                      !PreemptorWaits(*cached.job->status.ledger.preemption);
    if ((request && request != cached.request) || preempts != cached.preempts || over) changed.push_back(key);
    cached.request = std::move(request);
    cached.request_attempt = cached.job ? cached.job->status.ledger.attempt : 0;
    cached.preempts = std::move(preempts);
  }
  for (const Key& key : changed) Notify(key);
}

}  // namespace ringmaster::sim
