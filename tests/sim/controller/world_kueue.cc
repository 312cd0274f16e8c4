// SPDX-License-Identifier: Apache-2.0

// World: Workloads of jobs in a queue, as the API server and the garbage collector treat them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/controller/gang_model.h"
#include "tests/sim/controller/world.h"

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

const std::vector<WorkloadTruth>& World::WorkloadsOf(const Key& key) const {
  static const std::vector<WorkloadTruth> kNone;
  const auto it = workloads_.find(key);
  return it == workloads_.end() ? kNone : it->second;
}

std::vector<Key> World::WorkloadKeys() const {
  std::vector<Key> keys;
  for (const auto& [key, all] : workloads_) keys.push_back(key);
  return keys;
}

void World::SetQueue(const Key& key, std::string queue) {
  auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.job.deleted) return;
  it->second.queue = std::move(queue);
  it->second.queue_changed = scheduler_.now();
  JobChanged(key);
}

void World::SetDefaultQueue(bool exists) {
  if (std::exchange(default_queue_, exists) == exists) return;
  default_queue_changed_ = scheduler_.now();
  for (const Observer& observer : observers_)
    if (observer.default_queue_changed) observer.default_queue_changed();
}

void World::AdmitWorkloads(const Key& key) {
  const auto it = workloads_.find(key);
  if (it == workloads_.end()) return;
  for (WorkloadTruth& w : it->second) {
    w.workload.reserved = w.workload.admitted = true;
    w.workload.grants.clear();
    for (const core::PodSet& set : w.workload.pod_sets) w.workload.grants.push_back({set.name, set.count});
    Touch(key, w.workload);
  }
}

Revision World::WorkloadChanged(const Key& key) {
  const Revision revision = ++revisions_[static_cast<size_t>(Kind::kWorkload)];
  for (const Observer& observer : observers_)
    if (observer.workload_changed) observer.workload_changed(key);
  return revision;
}

Result<WorkloadTruth*> World::FindWorkload(const Key& key, const std::string& name, const std::string& uid) {
  auto& all = workloads_[key];
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const WorkloadTruth& w) { return w.workload.name == name; });
  if (it == all.end()) return Error{Code::kNotFound, "no workload " + name};
  if (it->workload.uid != uid) return Error{Code::kConflict, name + " has another uid"};
  return &*it;
}

Revision World::Touch(const Key& key, core::Workload& workload) {
  workload.revision = revision(Kind::kWorkload) + 1;
  return WorkloadChanged(key);
}

Result<Revision> World::MakeWorkload(const Key& key, JobTruth& job, const core::MakeWorkload& action) {
  if (job.job.deleted) return Error{Code::kForbidden, "the job is being deleted"};
  if (auto refusal = RefusesPods("workload")) return *refusal;
  if (action.name.empty()) {
    const std::string name =
        (action.replaces.empty() ? key.name + "-" + job.job.uid : action.replaces + "+") +
        (action.surplus > 0 ? fmt::format("-surplus-{}", action.surplus) : "");
    for (const WorkloadTruth& w : workloads_[key])
      if (w.workload.name == name) return Error{Code::kAlreadyExists, "workload " + name + " exists"};
    WorkloadTruth& truth = workloads_[key].emplace_back();
    truth.owner_uid = job.job.uid;
    truth.workload.name = name;
    truth.workload.uid = fmt::format("workload-{}", next_uid_++);
    truth.workload.queue = action.queue;
    truth.workload.pod_sets = action.pod_sets;
    truth.workload.slice = action.slice;
    truth.workload.replaces = action.replaces;
    truth.workload.surplus = action.surplus;
    truth.workload.held = true;
    return Touch(key, truth.workload);
  }
  auto found = FindWorkload(key, action.name, action.uid);
  if (!found.ok()) return found.error();
  core::Workload& w = (*found)->workload;
  if (w.revision != action.revision) return Error{Code::kConflict, action.name + " has changed"};
  if (w.reserved) return Error{Code::kInvalid, "spec.podSets: field is immutable"};
  w.queue = action.queue;
  w.pod_sets = action.pod_sets;
  w.slice = action.slice;
  w.replaces = action.replaces;
  return Touch(key, w);
}

Result<Revision> World::ResizeWorkload(const Key& key, const core::ResizeWorkload& action) {
  auto found = FindWorkload(key, action.name, action.uid);
  if (!found.ok()) return found.error();
  core::Workload& w = (*found)->workload;
  if (w.revision != action.revision) return Error{Code::kConflict, action.name + " has changed"};
  if (!w.reserved || w.pod_sets.size() != action.pod_sets.size())
    return Error{Code::kInvalid, "spec.podSets: field is immutable"};
  for (size_t i = 0; i < w.pod_sets.size(); ++i) {
    if (action.pod_sets[i].count > w.pod_sets[i].count)
      return Error{Code::kInvalid, "spec.podSets: field is immutable"};
    w.pod_sets[i].count = action.pod_sets[i].count;
    w.grants[i].count = std::min(w.grants[i].count, w.pod_sets[i].count);
  }
  return Touch(key, w);
}

Result<Revision> World::SetWorkloadStatus(const Key& key, const core::SetWorkloadStatus& action) {
  using Change = core::SetWorkloadStatus::Change;
  auto found = FindWorkload(key, action.name, action.uid);
  if (!found.ok()) return found.error();
  core::Workload& w = (*found)->workload;
  if (w.revision != action.revision) return Error{Code::kConflict, action.name + " has changed"};
  switch (action.change) {
    case Change::kClear:
      for (const Observer& observer : observers_)
        if (observer.quota_freed) observer.quota_freed(key, **found);
      w.reserved = w.admitted = false;
      w.grants.clear();
      w.waits_for = action.message;
      if (w.pods_ready != core::PodsReady::kUnreported) w.pods_ready = core::PodsReady::kWaitForStart;
      break;
    case Change::kFinish:
      w.finished = true;
      break;
    case Change::kReport:
      w.pods_ready = action.pods_ready;
      break;
    case Change::kGiveBack:
      for (const core::Grant& unused : action.unused)
        for (size_t i = 0; i < w.grants.size(); ++i)
          if (w.grants[i].name == unused.name) {
            core::Grant& grant = w.grants[i];
            const int32_t left = std::min(grant.count, w.pod_sets[i].count - unused.count);
            grant.given_back += grant.count - left;
            grant.count = left;
          }
      break;
  }
  return Touch(key, w);
}

Result<Revision> World::DeleteWorkload(const Key& key, const core::DeleteWorkload& action) {
  auto found = FindWorkload(key, action.name, action.uid);
  if (!found.ok()) return found.error();
  if (action.revision != 0 && (*found)->workload.revision != action.revision)
    return Error{Code::kConflict, action.name + " has changed"};
  if ((*found)->workload.reserved && !(*found)->workload.finished)
    for (const Observer& observer : observers_)
      if (observer.quota_freed) observer.quota_freed(key, **found);
  (*found)->workload.deleting = true;
  Touch(key, (*found)->workload);
  RemoveWorkloads(key);
  return revision(Kind::kWorkload);
}

Result<Revision> World::ReleaseWorkload(const Key& key, const core::ReleaseWorkload& action) {
  auto found = FindWorkload(key, action.name, action.uid);
  if (!found.ok()) {
    if (found.error().code == Code::kNotFound) return Revision{0};
    return found.error();
  }
  if (std::exchange((*found)->workload.held, false)) Touch(key, (*found)->workload);
  RemoveWorkloads(key);
  return revision(Kind::kWorkload);
}

// Removes those that are deleted and not held.
void World::RemoveWorkloads(const Key& key) {
  const auto it = workloads_.find(key);
  if (it == workloads_.end()) return;
  const size_t gone = std::erase_if(
      it->second, [](const WorkloadTruth& w) { return w.workload.deleting && !w.workload.held; });
  if (it->second.empty()) workloads_.erase(it);
  if (gone == 0) return;
  WorkloadChanged(key);
  if (jobs_.contains(key)) Collect(key);
}

// What the garbage collector does with the Workloads of a job that is deleted or orphans them.
void World::CollectWorkloads(const Key& key, const std::string& owner_uid, bool orphaned) {
  const auto it = workloads_.find(key);
  if (it == workloads_.end()) return;
  bool changed = false;
  for (WorkloadTruth& w : it->second) {
    if (w.owner_uid != owner_uid) continue;
    changed = true;
    if (orphaned)
      w.owner_uid.clear();
    else
      w.workload.deleting = true;
    w.workload.revision = revision(Kind::kWorkload) + 1;
  }
  if (!changed) return;
  WorkloadChanged(key);
  RemoveWorkloads(key);
}

bool World::OwnsWorkload(const Key& key, const std::string& job_uid) const {
  const auto& all = WorkloadsOf(key);
  return std::any_of(all.begin(), all.end(), [&](const WorkloadTruth& w) { return w.owner_uid == job_uid; });
}

bool World::HasLocalQueue(const std::string& name) const {
  return name != core::kDefaultQueue || default_queue_;
}

void World::FinishReplaced(const Key& key, std::vector<WorkloadTruth>& workloads) {
  for (const WorkloadTruth& larger : workloads) {
    const core::Workload& w = larger.workload;
    if (!w.reserved || w.finished || w.replaces.empty() || !rng_.Chance(0.1)) continue;
    for (WorkloadTruth& old : workloads) {
      if (old.workload.name != w.replaces || old.workload.finished || old.workload.deleting) continue;
      old.workload.finished = true;
      Touch(key, old.workload);
    }
  }
}

void World::TickKueue() {
  for (auto& [key, all] : workloads_) {
    for (WorkloadTruth& w : all) {
      const bool has_queue = HasLocalQueue(w.workload.queue);
      if (!w.owner_uid.empty() && kueue_.Tick(w.workload, has_queue, faulty(), GangModel::kTick))
        Touch(key, w.workload);
    }
    FinishReplaced(key, all);
  }
}

}  // namespace ringmaster::sim
