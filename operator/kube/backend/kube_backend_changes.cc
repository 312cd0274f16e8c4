// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the stores' callbacks. They update the free capacity and notify the jobs that must be decided
// again.
#include <set>
#include <utility>

#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {
namespace {

bool SameFacts(const core::NodeFacts& a, const core::NodeFacts& b) {
  const auto taints = [](const core::NodeFacts& facts) {
    std::vector<std::string> list;
    for (const core::Taint& taint : facts.taints)
      list.push_back(taint.key + "=" + taint.value + ":" + taint.effect);
    return list;
  };
  return a.allocatable == b.allocatable && a.labels == b.labels && a.ready == b.ready &&
         a.unschedulable == b.unschedulable && taints(a) == taints(b);
}

}  // namespace

void KubeBackend::OnJob(const Job& before, const Job& after) {
  const std::string name = (after ? after : before)->key.ToString();
  if (!after) {
    MutexLock lock(mutex_);
    job_states_.erase(name);
  }
  Notify(name);
}

void KubeBackend::CountPod(const PodRecord* pod, int64_t by) {
  if (pod == nullptr || !pod->own) return;
  worker_pods_ += by;
  if (!pod->own->pod.gated) return;
  const auto job = gated_pods_.try_emplace(pod->own->owner->job, 0).first;
  job->second += by;
  if (job->second == 0) gated_pods_.erase(job);
}

void KubeBackend::OnPod(const std::shared_ptr<const PodRecord>& before,
                        const std::shared_ptr<const PodRecord>& after) {
  bool freed = false;
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = !std::exchange(pods_changed_, true);
    CountPod(before.get(), -1);
    CountPod(after.get(), 1);
    if (before && (!after || after->uid() != before->uid())) {
      capacity_.RemovePod(before->uid());
      freed = !before->ended;
    }
    if (after) {
      const PodRecord::Own* own = after->own.get();
      if (after->ended) {
        capacity_.RemovePod(after->uid());
        freed = freed || !before || !before->ended;
      } else if (!after->node().empty()) {
        capacity_.SetPod(after->uid(), *after->requests, after->node());
      } else if (own != nullptr && !own->pod.gated && !own->pod.deleting()) {
        capacity_.ExpectPod(after->uid(), own->shape);
      } else if (own != nullptr && own->pod.gated && !own->pod.deleting()) {
        capacity_.SetGated(after->uid());
      } else {
        capacity_.RemovePod(after->uid());
      }
    }
  }
  if (first) reflectors_.Wake();
  if (freed) CapacityChanged();
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
  if (!before || !after || !SameFacts(before->facts, after->facts)) {
    {
      MutexLock lock(mutex_);
      if (after) {
        capacity_.SetNode(after->facts);
        was_missing = missing_nodes_.erase(name) > 0;
      } else {
        capacity_.RemoveNode(name);
      }
    }
    CapacityChanged();
  }
  const bool restarted = before && after && after->restarted != before->restarted;
  if (after && !was_missing && !restarted && health(after) == (before ? health(before) : Health::kReady))
    return;
  std::set<std::string> jobs;
  for (const auto& pod : pods_.All())
    if (pod->own && pod->node() == name) jobs.insert(pod->own->owner->job);
  for (const Job& job : jobs_.All())
    for (const core::Suspect& suspect : job->status.ledger.suspects)
      if (suspect.node == name) jobs.insert(job->key.ToString());
  for (const std::string& job : jobs) Notify(job);
}

void KubeBackend::OnNamespace(const std::string& name, const std::shared_ptr<const NamespaceRecord>& before,
                              const std::shared_ptr<const NamespaceRecord>& after) {
  if (before && after && before->pod_security == after->pod_security && before->ending == after->ending)
    return;
  for (const std::string& job : jobs_.Keys())
    if (job.starts_with(name + "/")) Notify(job);
}

void KubeBackend::CapacityChanged() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(capacity_changed_, true)) return;
  }
  reflectors_.Wake();
}

}  // namespace ringmaster::kube
