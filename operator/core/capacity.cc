// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace ringmaster::core {

namespace {

constexpr const char* kPods = "pods";  // every pod takes one

bool Extended(const std::string& resource) { return resource.find('/') != std::string::npos; }

std::string AmountText(const std::string& resource, int64_t amount) {
  if (resource == "cpu") return fmt::format("{} cpu", static_cast<double>(amount) / 1000.0);
  if (resource == "memory" || resource == "ephemeral-storage")
    return fmt::format("{} MiB of {}", (amount + (1 << 20) - 1) >> 20, resource);
  return fmt::format("{} x {}", amount, resource);
}

}  // namespace

size_t Capacity::IndexOf(const std::string& resource) {
  return names_.emplace(resource, names_.size()).first->second;
}

Capacity::Amounts Capacity::ToAmounts(const Resources& resources) {
  for (const auto& [name, amount] : resources) IndexOf(name);
  return Lookup(resources);
}

Capacity::Amounts Capacity::Lookup(const Resources& resources) const {
  Amounts amounts(names_.size(), 0);
  for (const auto& [name, amount] : resources)
    if (auto it = names_.find(name); it != names_.end()) amounts[it->second] = amount;
  return amounts;
}

Capacity::Amounts Capacity::AmountsOfPod(const Resources& requests) {
  const size_t pods = IndexOf(kPods);
  Amounts amounts = ToAmounts(requests);
  amounts[pods] = 1;
  return amounts;
}

void Capacity::Add(Amounts& to, const Amounts& amounts, int64_t sign) {
  if (to.size() < amounts.size()) to.resize(amounts.size(), 0);
  for (size_t i = 0; i < amounts.size(); ++i) to[i] += sign * amounts[i];
}

const Capacity::Amounts* Capacity::Hold(Amounts amounts) {
  const auto kind = kinds_.try_emplace(std::move(amounts), 0).first;
  kind->second += 1;
  return &kind->first;
}

void Capacity::Drop(const Amounts* amounts) {
  const auto kind = kinds_.find(*amounts);
  CHECK(kind != kinds_.end());
  if (--kind->second == 0) kinds_.erase(kind);
}

int32_t Capacity::PodsThatFit(const Node& node, const Amounts& requests) const {
  int64_t pods = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] <= 0) continue;
    const int64_t free = At(node.allocatable, i) - At(node.used, i);
    pods = std::min(pods, std::max<int64_t>(free, 0) / requests[i]);
  }
  return static_cast<int32_t>(pods);
}

// ---- observations

void Capacity::SetNode(NodeFacts facts) {
  Node& node = nodes_[facts.name];
  node.allocatable = ToAmounts(facts.allocatable);
  const std::string name = facts.name;
  node.facts = std::move(facts);
  PlaceAgain({node.expected.begin(), node.expected.end()});
  PlaceWaitingOn(name);
}

void Capacity::RemoveNode(const std::string& name) {
  auto it = nodes_.find(name);
  if (it == nodes_.end()) return;
  it->second.facts.reset();
  it->second.allocatable.clear();
  PlaceAgain({it->second.expected.begin(), it->second.expected.end()});
  const Amounts& used = it->second.used;
  if (std::all_of(used.begin(), used.end(), [](int64_t amount) { return amount == 0; })) nodes_.erase(it);
}

void Capacity::SetPod(const std::string& uid, const Resources& requests, const std::string& node) {
  auto it = pods_.find(uid);
  if (it != pods_.end() && it->second.shape == nullptr && it->second.at->first == node) return;
  RemovePod(uid);
  Nodes::value_type& place = *nodes_.try_emplace(node).first;
  Pod pod;
  pod.requests = Hold(AmountsOfPod(requests));
  pod.at = &place;
  Add(place.second.used, *pod.requests, +1);
  pods_.emplace(uid, std::move(pod));
  MoveExpectedPods(place.second);
}

void Capacity::ExpectPod(const std::string& uid, const Shape& shape) {
  auto [it, added] = pods_.try_emplace(uid);
  if (!added) return;
  it->second.requests = Hold(AmountsOfPod(shape->requests));
  it->second.shape = shape;
  Place(uid, it->second);
}

void Capacity::RemovePod(const std::string& uid) {
  auto it = pods_.find(uid);
  if (it == pods_.end()) return;
  const Nodes::value_type* place = it->second.at;
  Unplace(uid, it->second);
  unplaced_.erase(uid);
  Drop(it->second.requests);
  pods_.erase(it);
  if (place != nullptr) PlaceWaitingOn(place->first);
}

void Capacity::SetGated(const std::string& uid) {
  auto it = pods_.find(uid);
  if (it != pods_.end() && !it->second.reserved) RemovePod(uid);
}

void Capacity::Unreserve(const std::string& uid) {
  auto it = pods_.find(uid);
  if (it != pods_.end() && it->second.reserved) RemovePod(uid);
}

// ---- expected pods

void Capacity::Unplace(const std::string& uid, Pod& pod) {
  if (pod.at == nullptr) return;
  Node& node = pod.at->second;
  Add(node.used, *pod.requests, -1);
  node.expected.erase(uid);
  pod.at = nullptr;
}

bool Capacity::PlaceOn(Nodes::value_type& place, const std::string& uid, Pod& pod) {
  Node& node = place.second;
  if (!node.facts || !node.facts->ready || PodsThatFit(node, *pod.requests) < 1) return false;
  if (!Matches(*pod.shape, *node.facts)) return false;
  pod.at = &place;
  Add(node.used, *pod.requests, +1);
  node.expected.insert(uid);
  unplaced_.erase(uid);
  return true;
}

void Capacity::Place(const std::string& uid, Pod& pod) {
  for (Nodes::value_type& place : nodes_)
    if (PlaceOn(place, uid, pod)) return;
  unplaced_.insert(uid);
}

void Capacity::PlaceAgain(const std::vector<std::string>& uids) {
  for (const std::string& uid : uids) Unplace(uid, pods_.at(uid));
  for (const std::string& uid : uids) Place(uid, pods_.at(uid));
}

// Moves expected pods to other nodes until the bound pods fit: one of them was expected elsewhere.
void Capacity::MoveExpectedPods(Node& node) {
  if (!node.facts) return;
  const auto crowded = [&] {
    for (size_t i = 0; i < node.used.size(); ++i)
      if (node.used[i] > At(node.allocatable, i)) return true;
    return false;
  };
  std::vector<std::string> moved;
  while (crowded() && !node.expected.empty()) {
    moved.push_back(*node.expected.begin());
    Unplace(moved.back(), pods_.at(moved.back()));
  }
  for (const std::string& uid : moved) Place(uid, pods_.at(uid));
}

// Places waiting pods on a node that may have room again.
void Capacity::PlaceWaitingOn(const std::string& name) {
  auto node = nodes_.find(name);
  if (unplaced_.empty() || node == nodes_.end()) return;
  const std::vector<std::string> waiting(unplaced_.begin(), unplaced_.end());
  for (const std::string& uid : waiting) PlaceOn(*node, uid, pods_.at(uid));
}

bool Capacity::Reserve(const std::vector<std::string>& uids, const Shape& shape,
                       const std::vector<std::string>& peer_nodes) {
  std::vector<std::string> fresh;
  for (const std::string& uid : uids)
    if (!pods_.contains(uid)) fresh.push_back(uid);
  const auto count = static_cast<int32_t>(fresh.size());
  Room room = RoomFor(*shape, count, peer_nodes);
  if (room.total < count) return false;
  const Amounts amounts = AmountsOfPod(shape->requests);
  auto next = room.nodes.begin();
  for (const std::string& uid : fresh) {
    while (next->second == 0) ++next;
    next->second -= 1;
    Nodes::value_type& place = *nodes_.find(next->first);
    const Amounts* requests = Hold(amounts);
    Add(place.second.used, *requests, +1);
    place.second.expected.insert(uid);
    pods_[uid] = {requests, &place, shape, true};
  }
  return true;
}

// ---- queries

Capacity::Room Capacity::RoomFor(const PodShape& shape, int32_t count,
                                 const std::vector<std::string>& peer_nodes) const {
  Amounts requests = Lookup(shape.requests);
  if (auto it = names_.find(kPods); it != names_.end()) requests[it->second] = 1;
  // No node offers a resource that no node and no pod has ever named.
  const bool offered = std::all_of(shape.requests.begin(), shape.requests.end(), [&](const auto& item) {
    return item.second <= 0 || names_.contains(item.first);
  });
  std::optional<std::string> domain;
  if (!shape.topology_key.empty()) {
    for (const std::string& name : peer_nodes) {
      const auto it = nodes_.find(name);
      if (it == nodes_.end() || !it->second.facts) continue;
      const auto label = it->second.facts->labels.find(shape.topology_key);
      if (label != it->second.facts->labels.end()) domain = label->second;
    }
  }
  Room all;
  std::map<std::string, Room> domains;  // by value of the topology key
  for (const auto& [name, node] : nodes_) {
    if (!node.facts) continue;
    if (!node.facts->ready) {
      all.not_ready += 1;
      continue;
    }
    if (!Matches(shape, *node.facts)) {
      all.unmatched += 1;
      continue;
    }
    const int32_t pods = offered ? std::min(PodsThatFit(node, requests), count) : 0;
    if (pods == 0) {
      all.full += 1;
      continue;
    }
    std::string value;
    if (!shape.topology_key.empty()) value = node.facts->labels.at(shape.topology_key);
    if (domain && value != *domain) continue;
    Room& room = domains[value];
    room.nodes.emplace_back(name, pods);
    room.total += std::min(pods, count - room.total);
  }
  Room best;
  for (auto& [value, room] : domains)
    if (room.total > best.total) best = std::move(room);
  best.not_ready = all.not_ready;
  best.unmatched = all.unmatched;
  best.full = all.full;
  return best;
}

std::string Capacity::Missing(const PodShape& shape, int32_t count, const Room& room) const {
  // Name the scarce resources, accelerators and networks, rather than those that every node has.
  std::string wanted;
  for (const bool extended : {true, false}) {
    if (!wanted.empty()) break;
    for (const auto& [name, amount] : shape.requests) {
      if (Extended(name) != extended || amount <= 0) continue;
      wanted += (wanted.empty() ? "" : " and ") + AmountText(name, amount);
    }
  }
  if (wanted.empty()) wanted = "a pod slot";
  const bool one_each =
      std::all_of(room.nodes.begin(), room.nodes.end(), [](const auto& node) { return node.second == 1; });
  std::string text =
      one_each ? fmt::format("needs {} on {} nodes; {} {} room", wanted, count, room.nodes.size(),
                             room.nodes.size() == 1 ? "node has" : "nodes have")
               : fmt::format("needs {} for each of {} pods; there is room for {}", wanted, count, room.total);
  if (!shape.topology_key.empty()) text += fmt::format(" within one {}", shape.topology_key);
  std::vector<std::string> others;
  if (room.full > 0) others.push_back(fmt::format("{} full", room.full));
  if (room.unmatched > 0)
    others.push_back(fmt::format("{} kept out by taints, selectors or exclusion", room.unmatched));
  if (room.not_ready > 0) others.push_back(fmt::format("{} not ready", room.not_ready));
  if (!others.empty()) text += fmt::format(" (other nodes: {})", fmt::join(others, ", "));
  return text;
}

Fit Capacity::FitOf(const PodShape& shape, int32_t count, const std::vector<std::string>& peer_nodes) const {
  const Room room = RoomFor(shape, count, peer_nodes);
  if (room.total >= count) return {count, ""};
  return {room.total, Missing(shape, count, room)};
}

// ---- the scheduler's filters that look at a node alone

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
  // As in the scheduler, a term without requirements matches nothing.
  return shape.affinity.empty() ||
         std::any_of(shape.affinity.begin(), shape.affinity.end(), [&](const auto& term) {
           return !term.empty() && std::all_of(term.begin(), term.end(), [&](const Requirement& requirement) {
             return Holds(requirement, node);
           });
         });
}

}  // namespace ringmaster::core
