// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the stores' callbacks. They update the free capacity and notify the jobs that must be decided
// again.
#include <algorithm>
#include <set>
#include <utility>

#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {

void KubeBackend::OnJob(const Job& before, const Job& after) {
  const std::string name = (after ? after : before)->key.ToString();
  bool freed = false;
  {
    MutexLock lock(mutex_);
    // The stored job: hooks of one object may run in another order than its changes.
    const Job current = jobs_.Get(name);
    IndexSuspects(name, current);
    freed = current ? LearnJob(name) : planner_.RemoveJob(name);
    if (const auto known = job_states_.find(name); known != job_states_.end()) {
      JobState& state = known->second;
      if (current && current->status.ended()) state.goodput.Reset();
      if (!current || current->uid != state.uid) {
        job_states_.erase(known);
        CountPorts(name);
      }
    }
    if (!current) {
      sleeping_.Set(name, false, Now());
      devices_.jobs.erase(name);
    }
  }
  if (freed) CapacityChanged();
  bool unserved = false;
  if (after && !before) {
    MutexLock lock(mutex_);
    unserved = WaitsForGangApi(*after);
  }
  if (after && !after->queue.empty() && (!before || before->queue.empty())) {
    MutexLock lock(mutex_);
    unserved = unserved || !kueue_.value_or(false);
  }
  if (unserved) DiscoverBy(Now());
  PlanSoon();
  Notify(name);
}

void KubeBackend::OnObject(const std::string& job) {
  {
    MutexLock lock(mutex_);
    CountPorts(job);
  }
  Notify(job);
}

// Sums do not depend on the order of the changes.
void KubeBackend::CountPod(const PodRecord* pod, int64_t by) {
  if (pod == nullptr || !pod->own) return;
  worker_pods_ += by;
  if (!pod->own->node) return;
  auto& owners = owners_on_[*pod->own->node];
  const auto owner = owners.try_emplace(pod->own->owner, 0).first;
  owner->second += by;
  if (owner->second == 0) owners.erase(owner);
  if (owners.empty()) owners_on_.erase(*pod->own->node);
}

void KubeBackend::IndexSuspects(const std::string& name, const Job& job) {
  std::set<std::string> nodes;
  if (job)
    for (const core::Suspect& suspect : job->status.ledger.suspects)
      if (!suspect.node.empty()) nodes.insert(suspect.node);
  const auto known = suspects_of_.find(name);
  if (known == suspects_of_.end() && nodes.empty()) return;
  if (known != suspects_of_.end()) {
    for (const std::string& node : known->second) {
      const auto jobs = suspected_.find(node);
      if (jobs->second.erase(name) > 0 && jobs->second.empty()) suspected_.erase(jobs);
    }
    suspects_of_.erase(known);
  }
  if (nodes.empty()) return;
  for (const std::string& node : nodes) suspected_[node].insert(name);
  suspects_of_.emplace(name, std::move(nodes));
}

void KubeBackend::OnPod(const std::string& name, const std::shared_ptr<const PodRecord>& before,
                        const std::shared_ptr<const PodRecord>& after) {
  bool freed = false;
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = !std::exchange(pods_changed_, true);
    CountPod(before.get(), -1);
    CountPod(after.get(), 1);
    freed = before && !before->ended && (!after || after->ended || after->uid() != before->uid());
    PlacePod(name, pods_.Get(name));
  }
  if (first) reflectors_.Wake();
  if (freed) CapacityChanged();
  PlanSoon();
  if (before && before->own && (!after || !after->own || after->own->owner->job != before->own->owner->job))
    Notify(before->own->owner->job);
  if (after && after->own) Notify(after->own->owner->job);
}

void KubeBackend::OnNode(const std::string& name, const std::shared_ptr<const NodeRecord>& before,
                         const std::shared_ptr<const NodeRecord>& after) {
  enum class Health : uint8_t { kReady, kNotReady, kUnreachable };
  const auto health = [](const std::shared_ptr<const NodeRecord>& node) {
    if (!node || node->unreachable_since) return Health::kUnreachable;
    return node->facts.ready ? Health::kReady : Health::kNotReady;
  };
  bool was_missing = false;
  bool labels_changed = false;
  if (!before || !after || before->facts != after->facts) {
    {
      MutexLock lock(mutex_);
      const uint64_t labels = planner_.capacity().label_version();
      if (after) {
        PlaceNode(*after);
        was_missing = missing_nodes_.Found(name);
      } else {
        planner_.capacity().RemoveNode(name);
        devices_.nodes.erase(name);
      }
      labels_changed = planner_.capacity().label_version() != labels;
    }
    CapacityChanged();
  }
  if (labels_changed && nodes_.synced()) {
    for (const auto& job : jobs_.All())
      if (!job->spec->job.topology_required.empty()) Notify(job->key.ToString());
  }
  const bool restarted = before && after && after->restarted != before->restarted;
  if (after && !was_missing && !restarted && health(after) == (before ? health(before) : Health::kReady))
    return;
  std::set<std::string> jobs;
  {
    MutexLock lock(mutex_);
    if (const auto on = owners_on_.find(name); on != owners_on_.end())
      for (const auto& [owner, pods] : on->second) jobs.insert(owner->job);
    if (const auto of = suspected_.find(name); of != suspected_.end())
      jobs.insert(of->second.begin(), of->second.end());
  }
  for (const std::string& job : jobs) Notify(job);
}

void KubeBackend::OnNamespace(const std::string& name, const std::shared_ptr<const NamespaceRecord>& before,
                              const std::shared_ptr<const NamespaceRecord>& after) {
  if (!after) DropNamespace(name);
  if (before && after && before->pod_security == after->pod_security && before->ending == after->ending &&
      before->managed == after->managed)
    return;
  for (const std::string& job : jobs_.Keys())
    if (job.starts_with(name + "/")) Notify(job);
}

void KubeBackend::OnPriorityClass(const std::shared_ptr<const PriorityClassRecord>& before,
                                  const std::shared_ptr<const PriorityClassRecord>& after) {
  if (before && after && *before == *after) return;
  // Any job may name it, or have the default.
  for (const std::string& job : jobs_.Keys()) Notify(job);
}

void KubeBackend::CapacityChanged() {
  {
    MutexLock lock(mutex_);
    sleeping_.CapacityChanged(Now());
    if (std::exchange(capacity_changed_, true)) return;
  }
  reflectors_.Wake();
}

}  // namespace ringmaster::kube
