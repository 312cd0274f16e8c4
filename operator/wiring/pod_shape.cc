// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/pod_shape.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "operator/wiring/quantity.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kRequiredAffinity = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr const char* kPreferredAffinity = "preferredDuringSchedulingIgnoredDuringExecution";

void AddTo(core::Resources& to, const core::Resources& more) {
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

bool ListHas(const Json& list, std::string_view text) {
  return list.is_array() && std::any_of(list.begin(), list.end(), [&](const Json& item) {
           return item.is_string() && item.get_ref<const std::string&>() == text;
         });
}

// Whether a label selector matches these labels. null matches nothing, an empty selector everything.
bool Selects(const Json& selector, const Json& labels) {
  if (!selector.is_object()) return false;
  if (const Json& equal = json::Child(selector, "matchLabels"); equal.is_object())
    for (const auto& [key, value] : equal.items())
      if (!labels.contains(key) || labels[key] != value) return false;
  for (const Json& expression : json::Items(selector, "matchExpressions")) {
    const std::string key(json::Text(expression, "key"));
    const std::string_view op = json::Text(expression, "operator");
    const bool exists = labels.contains(key);
    const bool listed = exists && ListHas(json::Child(expression, "values"), json::Text(labels, key));
    if (op == "In" ? !listed : op == "NotIn" ? listed : op == "Exists" ? !exists : exists) return false;
  }
  return true;
}

// Whether the affinity term selects the pod itself.
bool SelectsItself(const Json& term, const Json& metadata) {
  static const Json kNone = Json::object();
  const Json& written = json::Child(metadata, "labels");
  const Json& labels = written.is_object() ? written : kNone;
  const Json& spaces = json::Items(term, "namespaces");
  const bool other_spaces = !spaces.empty() && !ListHas(spaces, json::Text(metadata, "namespace"));
  if (other_spaces && !json::Child(term, "namespaceSelector").is_object()) return false;
  for (const Json& key : json::Items(term, "mismatchLabelKeys"))
    if (key.is_string() && labels.contains(key.get_ref<const std::string&>())) return false;
  return Selects(json::Child(term, "labelSelector"), labels);
}

}  // namespace

core::Resources RequestsOf(const Json& pod_spec) {
  core::Resources sum;
  for (const Json& container : json::Items(pod_spec, "containers")) AddTo(sum, Requests(container));
  core::Resources sidecars;
  core::Resources starting;
  for (const Json& container : json::Items(pod_spec, "initContainers")) {
    core::Resources requests = Requests(container);
    if (json::Text(container, "restartPolicy") == "Always") {
      AddTo(sidecars, requests);
      AtLeast(starting, sidecars);
    } else {
      AddTo(requests, sidecars);
      AtLeast(starting, requests);
    }
  }
  AddTo(sum, sidecars);
  AtLeast(sum, starting);
  for (auto& [name, amount] : Requests(pod_spec)) sum[name] = amount;  // pod-level requests replace the sum
  AddTo(sum, ParseResources(json::Child(pod_spec, "overhead")));
  return sum;
}

std::vector<std::string> ClaimsOf(const Json& pod_spec) {
  std::vector<std::string> templates;
  for (const Json& claim : json::Items(pod_spec, "resourceClaims"))
    if (const std::string_view name = json::Text(claim, "resourceClaimTemplateName"); !name.empty())
      templates.emplace_back(name);
  std::sort(templates.begin(), templates.end());
  return templates;
}

core::PodShape ShapeOf(const Json& pod) {
  const Json& pod_spec = json::Child(pod, "spec");
  core::PodShape shape;
  shape.requests = RequestsOf(pod_spec);
  shape.claims = ClaimsOf(pod_spec);
  for (const Json& toleration : json::Items(pod_spec, "tolerations"))
    shape.tolerations.push_back(
        {std::string(json::Text(toleration, "key")), json::Text(toleration, "operator") == "Exists",
         std::string(json::Text(toleration, "value")), std::string(json::Text(toleration, "effect"))});
  if (const Json& selector = json::Child(pod_spec, "nodeSelector"); selector.is_object()) {
    for (const auto& [key, value] : selector.items())
      if (value.is_string()) shape.node_selector[key] = value.get<std::string>();
  }
  const Json& affinity = json::Child(pod_spec, "affinity");
  for (const Json& term : json::Items(json::Child(json::Child(affinity, "nodeAffinity"), kRequiredAffinity),
                                      "nodeSelectorTerms"))
    shape.affinity.push_back(Term(term));
  for (const Json& term : json::Items(json::Child(affinity, "podAffinity"), kRequiredAffinity))
    if (shape.topology_key.empty() && SelectsItself(term, json::Child(pod, "metadata")))
      shape.topology_key = json::Text(term, "topologyKey");
  // Wiring adds its term after those of the template.
  for (const Json& item : json::Items(json::Child(affinity, "podAffinity"), kPreferredAffinity)) {
    const Json& term = json::Child(item, "podAffinityTerm");
    if (SelectsItself(term, json::Child(pod, "metadata")))
      shape.preferred_key = json::Text(term, "topologyKey");
  }
  return shape;
}

}  // namespace ringmaster::wiring
