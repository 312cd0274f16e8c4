// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the domains of a gang's pods (core/capacity.h). With the operator's gate each pod gets the
// domain of its reserved place as a node selector. With other providers, which choose the nodes, all pods of
// an attempt get the domain that had room for the gang when the first of them was created.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {
namespace {

std::vector<std::string> KeysOf(const core::Job& job) {
  std::vector<std::string> keys;
  for (const std::string* key : {&job.topology_required, &job.topology_preferred})
    if (!key->empty()) keys.push_back(*key);
  return keys;
}

// Whether people would look at this label for a topology.
bool SaysWhere(const std::string& label) {
  if (label == "kubernetes.io/hostname") return false;
  static constexpr const char* kWords[] = {
      "topology", "zone",   "rack",     "block",  "clique",    "switch",        "spine",
      "leaf",     "fabric", "superpod", "island", "agentpool", "nvlink.domain", "accelerator.topograph"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](const char* word) { return label.find(word) != std::string::npos; });
}

}  // namespace

std::string KubeBackend::DomainOf(const control::Key& key, const std::string& node) const {
  const Job job = jobs_.Get(key.ToString());
  const auto record = nodes_.Get(node);
  if (!job || !record || job->spec->DomainKey().empty()) return "";
  const auto label = record->facts.labels.find(job->spec->DomainKey());
  return label == record->facts.labels.end() ? "" : label->second;
}

std::optional<core::TopologySpread> KubeBackend::SpreadOf(const JobRecord& job,
                                                          const core::Observed& observed) const {
  const std::string& key = job.spec->DomainKey();
  if (key.empty()) return std::nullopt;
  constexpr size_t kMaxNamed = 8;
  std::map<std::string, int32_t> domains;
  int32_t outside = 0;
  for (const core::Pod& pod : observed.pods) {
    if (pod.attempt != observed.status.ledger.attempt || !pod.bound() || !pod.alive()) continue;
    const std::string domain = DomainOf(job.key, pod.node);
    (domain.empty() ? outside : domains[domain]) += 1;
  }
  // Kueue's annotation means nothing to a job without a queue, or without a Topology of its queue's flavors.
  const bool ours = !job.spec->job.TopologyKey().empty();
  if (domains.empty() && (outside == 0 || !ours)) return std::nullopt;
  core::TopologySpread spread{key, static_cast<int32_t>(domains.size()), ""};
  size_t named = 0;
  for (const auto& [domain, pods] : domains) {
    if (named++ == kMaxNamed) {
      spread.pods += fmt::format(" and {} more", domains.size() - kMaxNamed);
      break;
    }
    spread.pods += fmt::format("{}{}: {}", spread.pods.empty() ? "" : ", ", domain, pods);
  }
  if (outside > 0)
    spread.pods += fmt::format("{}without the label: {}", spread.pods.empty() ? "" : ", ", outside);
  return spread;
}

std::string KubeBackend::MissingTopology(const JobRecord& job) const {
  const std::string& key = job.spec->job.topology_required;
  // An autoscaler may add nodes that have it.
  if (key.empty() || job.spec->job.autoscaler || !nodes_.synced()) return "";
  MutexLock lock(mutex_);
  if (!planner_.capacity().has_nodes() || planner_.capacity().labels().contains(key)) return "";
  constexpr size_t kMaxNamed = 10;
  std::vector<std::string> labels;
  for (const auto& [label, nodes] : planner_.capacity().labels())
    if (SaysWhere(label) && labels.size() < kMaxNamed) labels.push_back(label);
  return fmt::format("scheduling.topology.required is {}, and no node has this label; {}", key,
                     labels.empty() ? "nor has any node another one that names a zone, rack or switch"
                                    : fmt::format("nodes have {}", fmt::join(labels, ", ")));
}

core::Capacity::Shape KubeBackend::WithoutDomain(const JobRecord& job, core::Capacity::Shape shape,
                                                 const core::PodShape& rendered) const {
  core::PodShape free = *shape;
  for (const std::string& key : KeysOf(job.spec->job))
    if (!rendered.node_selector.contains(key)) free.node_selector.erase(key);
  return free == *shape ? shape : interners_.shapes.Intern(std::move(free));
}

void KubeBackend::FindBound(const JobRecord& job, const core::Observed& observed,
                            const std::vector<std::string>& excluded_nodes,
                            core::RoomPlanner::Gang& gang) const {
  if (job.spec->job.TopologyKey().empty()) return;
  const int64_t attempt = observed.status.ledger.attempt;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid != job.uid || own.pod.attempt != attempt || record->ended) continue;
    gang.bound_peers.push_back(PlaceName(job, attempt, own.pod.rank));
    if (own.node || own.pod.deleting() || !own.shape) continue;
    core::Capacity::Shape free =
        WithoutDomain(job, own.shape, *RenderedShape(job, own.pod.rank, excluded_nodes));
    if (free == own.shape) continue;
    const bool refused = own.details && own.details->waiting_reason == core::kUnschedulable;
    gang.bound.push_back({own.pod.rank, gang.bound_peers.back(), Counted(job.key.namespace_, own.shape),
                          Counted(job.key.namespace_, free), own.pod.gated, refused});
  }
}

void KubeBackend::ChooseDomain(const JobRecord& job, const core::CreatePod& action,
                               wiring::Context& context) const {
  const std::string place = job.key.namespace_ + "/" + action.name;
  const std::vector<std::string> keys = KeysOf(job.spec->job);
  if (keys.empty()) return;
  {
    MutexLock lock(mutex_);
    if (planner_.capacity().ReservedFor(place) != nullptr) {
      for (const std::string& key : keys)
        if (auto value = planner_.capacity().DomainOf(place, key))
          context.domain.emplace(key, *std::move(value));
      return;
    }
  }
  // What the pods of this attempt have already. One without a domain: the operator knew none.
  std::map<std::string, std::string> known;
  bool first = true;
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid != job.uid || own.pod.attempt != action.attempt || record->ended) continue;
    first = false;
    const auto node = own.node ? nodes_.Get(*own.node) : nullptr;
    for (const std::string& key : keys) {
      if (node && node->facts.labels.contains(key))
        known.emplace(key, node->facts.labels.at(key));
      else if (own.shape && own.shape->node_selector.contains(key))
        known.emplace(key, own.shape->node_selector.at(key));
    }
  }
  const core::Capacity::Shape rendered = RenderedShape(job, action.rank, action.excluded_nodes);
  std::map<std::string, std::string> chosen = std::move(known);
  if (first) {
    std::vector<std::pair<std::string, core::Capacity::Shape>> shapes;
    for (const std::string& key : keys) {
      core::PodShape one = *rendered;
      one.topology_key = key;
      one.preferred_key.clear();
      shapes.emplace_back(key, interners_.shapes.Intern(std::move(one)));
    }
    MutexLock lock(mutex_);
    JobState& state = StateOf(job);
    if (state.domain_attempt != action.attempt) {
      state.domain_attempt = action.attempt;
      state.domain.clear();
      for (const auto& [key, shape] : shapes)
        if (auto value = planner_.BestFit(shape, action.size)) state.domain.emplace(key, *std::move(value));
    }
    chosen = state.domain;
  }
  for (const auto& [key, value] : chosen)
    (key == job.spec->job.topology_required ? context.domain : context.near).emplace(key, value);
}

}  // namespace ringmaster::kube
