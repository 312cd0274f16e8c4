// SPDX-License-Identifier: Apache-2.0

// What a decision gets to see of the view.
#include <algorithm>
#include <set>
#include <utility>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"

namespace ringmaster::kube {

using control::Key;
using control::Kind;

std::optional<control::Snapshot> KubeBackend::Observe(const Key& key) const {
  const Job job = jobs_.Get(key.ToString());
  if (!job) return std::nullopt;
  control::Snapshot snapshot;
  snapshot.job_revision = job->revision;
  core::Observed& observed = snapshot.observed;
  observed.job = job->Job();
  observed.status = job->status;
  observed.pods = PodsOf(*job);
  observed.not_ready_nodes = NotReadyNodesOf(observed);
  observed.invalid = job->spec->problem;
  if (!observed.invalid.empty()) return snapshot;
  observed.prepared = PreparedOf(*job);
  observed.provider = ProviderOf(*job);
  if (observed.provider == core::GangProvider::kGate) observed.fit = FitOf(*job);
  if (!job->status.ended()) observed.preflight = PreflightOf(*job);
  std::lock_guard lock(mutex_);
  const JobState& state = StateOf(*job);
  observed.order = state.order;
  if (job->spec->job.native && state.report) observed.report = *state.report;
  return snapshot;
}

std::optional<core::Pod> KubeBackend::FindPod(const Key& key, const std::string& name) const {
  const Job job = jobs_.Get(key.ToString());
  const auto record = pods_.Get(key.namespace_ + "/" + name);
  if (!job || !record || !record->own) return std::nullopt;
  if (record->own->owner->job != key.ToString() || record->own->owner->uid != job->uid) return std::nullopt;
  return record->own->ToCore();
}

control::Revision KubeBackend::Seen(Kind kind, const Key& key) const {
  return kind == Kind::kJob ? jobs_.revision(key.namespace_) : pods_.revision(key.namespace_);
}

std::vector<Key> KubeBackend::Keys() const {
  std::vector<Key> keys;
  for (const auto& job : jobs_.All()) keys.push_back(job->key);
  return keys;
}

std::vector<core::Pod> KubeBackend::PodsOf(const JobRecord& job) const {
  std::vector<core::Pod> pods;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    if (record->own->owner->uid != job.uid) continue;  // of a job of that name that was
    core::Pod& pod = pods.emplace_back(record->own->ToCore());
    if (pod.node.empty()) continue;
    if (const auto node = nodes_.Get(pod.node)) {
      pod.unreachable_since = node->unreachable_since;
    } else if (nodes_.synced()) {
      std::lock_guard lock(mutex_);
      pod.unreachable_since = missing_nodes_.try_emplace(pod.node, Now()).first->second;
    }
  }
  std::sort(pods.begin(), pods.end(), [](const core::Pod& a, const core::Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
  return pods;
}

wiring::Gang KubeBackend::GangOf(const JobRecord& job) const {
  std::lock_guard lock(mutex_);
  return ChooseGang(job.spec->job.gang, std::max(job.spec->job.max, job.spec->job.replicas), gang_apis_)
      .value_or(wiring::Gang::kNone);
}

core::GangProvider KubeBackend::ProviderOf(const JobRecord& job) const {
  switch (GangOf(job)) {
    case wiring::Gang::kNone:
      return core::GangProvider::kNone;
    case wiring::Gang::kGate:
      return core::GangProvider::kGate;
    default:
      return core::GangProvider::kScheduler;
  }
}

std::vector<std::string> KubeBackend::NotReadyNodesOf(const core::Observed& observed) const {
  if (!nodes_.synced()) return {};
  std::set<std::string> sick;
  const auto look = [&](const std::string& name) {
    if (name.empty()) return;
    const auto node = nodes_.Get(name);
    if (!node || !node->facts.ready) sick.insert(name);
  };
  for (const core::Pod& pod : observed.pods) look(pod.node);
  for (const core::Suspect& suspect : observed.status.ledger.suspects) look(suspect.node);
  return {sick.begin(), sick.end()};
}

std::vector<std::string> KubeBackend::NodesOf(const JobRecord& job, int64_t attempt) const {
  std::vector<std::string> nodes;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid == job.uid && own.pod.attempt == attempt && !record->node().empty() && !record->ended)
      nodes.push_back(record->node());
  }
  return nodes;
}

core::Fit KubeBackend::FitOf(const JobRecord& job) const {
  int32_t gated = 0;
  std::shared_ptr<const core::PodShape> shape;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid != job.uid || own.pod.attempt != job.status.ledger.attempt) continue;
    if (!own.pod.gated || own.pod.deleting() || record->ended) continue;
    gated += 1;
    shape = own.shape;
  }
  if (gated == 0 || !shape) return {};
  const std::vector<std::string> beside = NodesOf(job, job.status.ledger.attempt);
  std::lock_guard lock(mutex_);
  return capacity_.FitOf(*shape, gated, beside);
}

std::optional<core::PrepareGang> KubeBackend::PreparedOf(const JobRecord& job) const {
  std::vector<CreatedObject> made;
  uint64_t authority = 0;
  {
    std::lock_guard lock(mutex_);
    JobState& state = StateOf(job);
    // What the watch has brought is judged by what it has brought since: it may be gone again.
    std::erase_if(state.made, [&](const CreatedObject& item) {
      return item.store->revision(job.key.namespace_) >= item.revision;
    });
    if (state.made.empty()) state.made.shrink_to_fit();
    made = state.made;
    if (job.spec->job.native) authority = authority_;  // nobody tells the others who it is
  }
  std::vector<std::string> marks;
  for (const CreatedObject& item : made) marks.push_back(item.mark);
  const auto gather = [&](const Store<ObjectRecord>& store) {
    for (const auto& record : store.Group(job.key.ToString())) {
      if (record->owner->uid != job.uid) continue;
      const bool older = std::any_of(made.begin(), made.end(), [&](const CreatedObject& item) {
        return item.store == &store && item.name == record->name;
      });
      if (!older) marks.push_back(*record->prepared_for);
    }
  };
  gather(services_);
  gather(config_maps_);
  for (const auto& [api, store] : groups_) gather(*store);
  return PreparedAction(marks, authority);
}

}  // namespace ringmaster::kube
