// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/pod_shape.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "operator/kube/backend/quantity.h"

namespace ringmaster::kube {
namespace {

constexpr const char* kRequired = "requiredDuringSchedulingIgnoredDuringExecution";

void Add(core::Resources& to, const core::Resources& more) {
  for (const auto& [name, amount] : more) to[name] += amount;
}
void AtLeast(core::Resources& to, const core::Resources& other) {
  for (const auto& [name, amount] : other) to[name] = std::max(to[name], amount);
}

// The API server sets missing requests to the limits. This does the same for objects that it has not stored
// yet.
core::Resources Requests(const Json& container) {
  const Json& resources = json::Child(container, "resources");
  core::Resources requests = ParseResources(json::Child(resources, "limits"));
  for (auto& [name, amount] : ParseResources(json::Child(resources, "requests"))) requests[name] = amount;
  return requests;
}

std::optional<core::Requirement::Op> OpOf(std::string_view name) {
  using Op = core::Requirement::Op;
  if (name == "In") return Op::kIn;
  if (name == "NotIn") return Op::kNotIn;
  if (name == "Exists") return Op::kExists;
  if (name == "DoesNotExist") return Op::kDoesNotExist;
  if (name == "Gt") return Op::kGt;
  if (name == "Lt") return Op::kLt;
  return std::nullopt;
}

std::vector<core::Requirement> Term(const Json& term) {
  std::vector<core::Requirement> requirements;
  for (const char* list : {"matchExpressions", "matchFields"}) {
    for (const Json& expression : json::Items(term, list)) {
      const auto op = OpOf(json::Text(expression, "operator"));
      if (!op) continue;
      core::Requirement& requirement = requirements.emplace_back();
      requirement.key = json::Text(expression, "key");
      requirement.op = *op;
      for (const Json& value : json::Items(expression, "values"))
        if (value.is_string()) requirement.values.push_back(value.get<std::string>());
    }
  }
  return requirements;
}

}  // namespace

core::Resources RequestsOf(const Json& pod_spec) {
  core::Resources sum;
  for (const Json& container : json::Items(pod_spec, "containers")) Add(sum, Requests(container));
  core::Resources sidecars;
  core::Resources starting;
  for (const Json& container : json::Items(pod_spec, "initContainers")) {
    core::Resources requests = Requests(container);
    if (json::Text(container, "restartPolicy") == "Always") {
      Add(sidecars, requests);
      AtLeast(starting, sidecars);
    } else {
      Add(requests, sidecars);
      AtLeast(starting, requests);
    }
  }
  Add(sum, sidecars);
  AtLeast(sum, starting);
  for (auto& [name, amount] : Requests(pod_spec)) sum[name] = amount;  // pod-level requests replace the sum
  Add(sum, ParseResources(json::Child(pod_spec, "overhead")));
  return sum;
}

core::PodShape ShapeOf(const Json& pod_spec) {
  core::PodShape shape;
  shape.requests = RequestsOf(pod_spec);
  for (const Json& toleration : json::Items(pod_spec, "tolerations"))
    shape.tolerations.push_back(
        {std::string(json::Text(toleration, "key")), json::Text(toleration, "operator") == "Exists",
         std::string(json::Text(toleration, "value")), std::string(json::Text(toleration, "effect"))});
  if (const Json& selector = json::Child(pod_spec, "nodeSelector"); selector.is_object()) {
    for (const auto& [key, value] : selector.items())
      if (value.is_string()) shape.node_selector[key] = value.get<std::string>();
  }
  const Json& affinity = json::Child(pod_spec, "affinity");
  for (const Json& term :
       json::Items(json::Child(json::Child(affinity, "nodeAffinity"), kRequired), "nodeSelectorTerms"))
    shape.affinity.push_back(Term(term));
  // Set by spec.scheduling.topology.required (wiring/placement.h).
  for (const Json& term : json::Items(json::Child(affinity, "podAffinity"), kRequired))
    if (shape.topology_key.empty()) shape.topology_key = json::Text(term, "topologyKey");
  return shape;
}

}  // namespace ringmaster::kube
