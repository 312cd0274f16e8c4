// SPDX-License-Identifier: Apache-2.0

// The scheduler's filters, as far as they look at a node alone.
#include <algorithm>
#include <charconv>

#include "operator/core/capacity.h"

namespace ringmaster::core {
namespace {

constexpr const char* kUnschedulableTaint = "node.kubernetes.io/unschedulable";
constexpr const char* kNameField = "metadata.name";

bool Tolerates(const Toleration& toleration, const Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (!toleration.key.empty() && toleration.key != taint.key) return false;
  if (toleration.key.empty() && !toleration.exists) return false;
  return toleration.exists || toleration.value == taint.value;
}

bool Tolerated(const PodShape& shape, const Taint& taint) {
  if (taint.effect == "PreferNoSchedule") return true;
  return std::any_of(shape.tolerations.begin(), shape.tolerations.end(),
                     [&](const Toleration& toleration) { return Tolerates(toleration, taint); });
}

std::optional<int64_t> ToInteger(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool Holds(const Requirement& requirement, const NodeFacts& node) {
  using Op = Requirement::Op;
  const auto label = node.labels.find(requirement.key);
  const bool is_name = requirement.key == kNameField;
  const bool exists = is_name || label != node.labels.end();
  const std::string* value = is_name ? &node.name : exists ? &label->second : nullptr;
  const auto listed = [&] {
    return std::find(requirement.values.begin(), requirement.values.end(), *value) !=
           requirement.values.end();
  };
  switch (requirement.op) {
    case Op::kIn:
      return exists && listed();
    case Op::kNotIn:
      return !exists || !listed();
    case Op::kExists:
      return exists;
    case Op::kDoesNotExist:
      return !exists;
    case Op::kGt:
    case Op::kLt: {
      if (!exists || requirement.values.size() != 1) return false;
      const auto have = ToInteger(*value);
      const auto want = ToInteger(requirement.values.front());
      if (!have || !want) return false;
      return requirement.op == Op::kGt ? *have > *want : *have < *want;
    }
  }
  return false;
}

}  // namespace

bool Matches(const PodShape& shape, const NodeFacts& node) {
  if (node.unschedulable && !Tolerated(shape, {kUnschedulableTaint, "", "NoSchedule"})) return false;
  if (!std::all_of(node.taints.begin(), node.taints.end(),
                   [&](const Taint& taint) { return Tolerated(shape, taint); }))
    return false;
  for (const auto& [key, value] : shape.node_selector) {
    const auto label = node.labels.find(key);
    if (label == node.labels.end() || label->second != value) return false;
  }
  if (!shape.topology_key.empty() && !node.labels.contains(shape.topology_key)) return false;
  // A term without requirements matches nothing, as for the scheduler.
  return shape.affinity.empty() ||
         std::any_of(shape.affinity.begin(), shape.affinity.end(), [&](const auto& term) {
           return !term.empty() && std::all_of(term.begin(), term.end(), [&](const Requirement& requirement) {
             return Holds(requirement, node);
           });
         });
}

}  // namespace ringmaster::core
