// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/placement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/launch.h"
#include "base/json.h"
#include "operator/core/model.h"
#include "operator/wiring/names.h"
#include "operator/wiring/resources.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr const char* kPreferred = "preferredDuringSchedulingIgnoredDuringExecution";
constexpr int kFullWeight = 100;
constexpr const char* kZone = "topology.kubernetes.io/zone";
// The operator handles a lost node. The cluster's eviction follows this much later, as a safety net.
constexpr int kEvictionSlackSeconds = 300;

// Returns requirements for `matchFields`: one per node, since the API allows one value each. The label
// kubernetes.io/hostname may differ from the node's name, or be missing.
Json OffNodes(const std::vector<std::string>& nodes) {
  Json fields = Json::array();
  for (const std::string& node : nodes)
    fields.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({node})}});
  return fields;
}

// Excludes the nodes in every term, since terms are alternatives. A term without requirements matches no
// node, and stays like that.
void ExcludeNodes(const std::vector<std::string>& nodes, Json& spec) {
  const Json off = OffNodes(nodes);
  Json& required = ObjectIn(ObjectIn(ObjectIn(spec, "affinity"), "nodeAffinity"), kRequired);
  Json& terms = ListIn(required, "nodeSelectorTerms");
  if (terms.empty()) {
    terms.push_back({{"matchFields", off}});
    return;
  }
  for (Json& term : terms) {
    if (!term.is_object()) term = Json::object();
    if (json::Items(term, "matchExpressions").empty() && json::Items(term, "matchFields").empty()) continue;
    Json& fields = ListIn(term, "matchFields");
    fields.insert(fields.end(), off.begin(), off.end());
  }
}

void AvoidNodes(const std::vector<std::string>& nodes, Json& spec) {
  ListIn(ObjectIn(ObjectIn(spec, "affinity"), "nodeAffinity"), kPreferred)
      .push_back({{"weight", kFullWeight}, {"preference", {{"matchFields", OffNodes(nodes)}}}});
}

void AddPodAffinity(const api::TrainingJob& job, const Context& context, Json& spec) {
  const api::Topology& topology = job.spec.scheduling.topology;
  const auto near = [&](const std::string& key) -> Json {
    return {{"topologyKey", key},
            {"labelSelector",
             {{"matchLabels",
               {{kJobLabel, job.metadata.name}, {kAttemptLabel, std::to_string(context.attempt)}}}}}};
  };
  if (!topology.required.empty())
    ListIn(ObjectIn(ObjectIn(spec, "affinity"), "podAffinity"), kRequired).push_back(near(topology.required));
  if (!topology.preferred.empty()) {
    ListIn(ObjectIn(ObjectIn(spec, "affinity"), "podAffinity"), kPreferred)
        .push_back({{"weight", kFullWeight}, {"podAffinityTerm", near(topology.preferred)}});
  }
}

void ChooseDomain(const Context& context, Json& spec) {
  if (!context.domain.empty()) {
    Json& selector = ObjectIn(spec, "nodeSelector");
    for (const auto& [key, value] : context.domain)
      if (!selector.contains(key)) selector[key] = value;
  }
  for (const auto& [key, value] : context.near) {
    const Json has = {{"key", key}, {"operator", "In"}, {"values", Json::array({value})}};
    ListIn(ObjectIn(ObjectIn(spec, "affinity"), "nodeAffinity"), kPreferred)
        .push_back({{"weight", kFullWeight}, {"preference", {{"matchExpressions", Json::array({has})}}}});
  }
}

void SpreadServers(const api::TrainingJob& job, int32_t rank, const Context& context, Json& spec) {
  const auto place = core::RolePlaceOf(rank);
  const api::Topology& topology = job.spec.scheduling.topology;
  if (!place || place->role != api::kParameterServer || !topology.required.empty() ||
      !topology.preferred.empty())
    return;
  Json& constraints = ListIn(spec, "topologySpreadConstraints");
  if (!constraints.empty()) return;
  constraints.push_back({{"maxSkew", 1},
                         {"topologyKey", kZone},
                         {"whenUnsatisfiable", "ScheduleAnyway"},
                         {"labelSelector",
                          {{"matchLabels",
                            {{kJobLabel, job.metadata.name},
                             {kAttemptLabel, std::to_string(context.attempt)},
                             {kRoleLabel, place->role}}}}}});
}

// Adds the toleration unless the template has one for the same taint.
void Tolerate(Json toleration, Json& spec) {
  Json& list = ListIn(spec, "tolerations");
  const bool known = std::any_of(list.begin(), list.end(), [&](const Json& item) {
    const std::string key = Text(item, {"key"}), effect = Text(item, {"effect"});
    return (key.empty() || key == toleration["key"]) && (effect.empty() || effect == toleration["effect"]);
  });
  if (!known) list.push_back(std::move(toleration));
}

bool AnyGpu(const Json& spec) {
  const Json* containers = Find(spec, {"containers"});
  return containers != nullptr && std::any_of(containers->begin(), containers->end(), HasGpu);
}

}  // namespace

void Place(const api::TrainingJob& job, int32_t rank, const Context& context, Json& spec) {
  if (!context.excluded_nodes.empty()) ExcludeNodes(context.excluded_nodes, spec);
  if (!context.avoided_nodes.empty()) AvoidNodes(context.avoided_nodes, spec);
  AddPodAffinity(job, context, spec);
  ChooseDomain(context, spec);
  SpreadServers(job, rank, context, spec);
  if (AnyGpu(spec))
    Tolerate({{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}, spec);
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    Tolerate({{"key", key},
              {"operator", "Exists"},
              {"effect", "NoExecute"},
              {"tolerationSeconds", job.spec.health.unreachableNodeSeconds + kEvictionSlackSeconds}},
             spec);
  }
}

}  // namespace ringmaster::wiring
