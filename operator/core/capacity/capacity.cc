// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"

namespace ringmaster::core {

namespace {

constexpr const char* kPods = "pods";  // every pod takes one
constexpr size_t kMinChanges = 1024;
constexpr size_t kMaxIndexes = 2048;  // 4 bytes per node each

bool Extended(const std::string& resource) { return resource.find('/') != std::string::npos; }

std::string AmountText(const std::string& resource, int64_t amount) {
  if (IsDeviceResource(resource)) {
    const std::string of = ClassOfResource(resource);
    if (of.empty()) return "devices";
    return fmt::format("{} device{} of {}", amount, amount == 1 ? "" : "s", of);
  }
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
  Amounts amounts(names_.size(), 0);
  for (const auto& [name, amount] : resources) amounts[names_.at(name)] = amount;
  return amounts;
}

Capacity::Amounts Capacity::AmountsOfPod(const Resources& requests) {
  const size_t pods = IndexOf(kPods);
  Amounts amounts = ToAmounts(requests);
  amounts[pods] = 1;
  return amounts;
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

// ---- nodes, and what fits on them

Capacity::NodeId Capacity::IdOf(const std::string& node) {
  const auto [it, added] = ids_.try_emplace(node, 0);
  if (!added) return it->second;
  if (unused_.empty()) {
    it->second = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
  } else {
    it->second = unused_.back();
    unused_.pop_back();
  }
  nodes_[it->second].name = node;
  return it->second;
}

void Capacity::Add(const Amounts& amounts, int64_t sign, Amounts& to) {
  if (to.size() < amounts.size()) to.resize(amounts.size(), 0);
  for (size_t i = 0; i < amounts.size(); ++i) to[i] += sign * amounts[i];
}

void Capacity::Use(NodeId id, const Amounts& amounts, int64_t sign, bool lasting) {
  Add(amounts, sign, nodes_[id].used);
  if (lasting) Add(amounts, sign, nodes_[id].lasting);
  Changed(id, false);
}

void Capacity::UseBy(const Pod& pod, int64_t sign) {
  if (pod.leaving) Add(*pod.requests, sign, nodes_[pod.at].leaving);
  Use(pod.at, *pod.requests, sign, pod.lasting);
}

void Capacity::CountSpace(const std::string& name, const Pod& pod, int64_t sign) {
  if (!pod.lasting) Add(*pod.requests, sign, spaces_[name.substr(0, name.find('/'))]);
}

void Capacity::Changed(NodeId id, bool facts) {
  // An index that has missed more changes than there are nodes is computed again.
  if (changes_.size() > std::max<size_t>(kMinChanges, 2 * nodes_.size())) {
    const size_t dropped = changes_.size() / 2;
    changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(dropped));
    first_change_ += dropped;
  }
  changes_.emplace_back(id, facts);
}

Capacity::Index& Capacity::IndexFor(const Shape& shape) {
  const auto [it, added] = indexes_.try_emplace(shape.get());
  Index& index = it->second;
  index.used = ++uses_;
  if (added) {
    index.shape = shape;
    const Amounts requests = AmountsOfPod(shape->requests);
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i] > 0) index.requests.emplace_back(i, requests[i]);
    if (indexes_.size() > kMaxIndexes)
      indexes_.erase(std::min_element(indexes_.begin(), indexes_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      }));
  }
  const uint64_t end = first_change_ + changes_.size();
  if (added || index.seen < first_change_) {
    for (NodeId id = 0; id < nodes_.size(); ++id) Update(index, id, true);
  } else {
    for (uint64_t i = index.seen; i < end; ++i) {
      const auto [id, facts] = changes_[i - first_change_];
      Update(index, id, facts);
    }
  }
  index.seen = end;
  return index;
}

// Returns how many pods the node has room for.
int32_t Capacity::Count(const Index& index, const Node& node) const {
  int64_t pods = std::numeric_limits<int32_t>::max();
  for (const auto& [i, amount] : index.requests) {
    const int64_t free = At(node.allocatable, i) - At(node.used, i) - At(node.claimed, i);
    pods = std::min(pods, std::max<int64_t>(free, 0) / amount);
  }
  return static_cast<int32_t>(pods);
}

// Applies a change of a node to the index. `facts`: not only its use may have changed.
void Capacity::Update(Index& index, NodeId id, bool facts) const {
  const Node& node = nodes_[id];
  const std::string& key = index.shape->topology_key;
  if (index.fits.size() < nodes_.size()) {
    index.fits.resize(nodes_.size(), kAbsent);
    if (!key.empty()) index.domain_of.resize(nodes_.size(), nullptr);
  }
  const int32_t before = index.fits[id];
  int32_t after = kAbsent;
  if (node.facts) {
    // Without a change of the facts, a node stays matched or not. Readiness is one of the facts.
    const bool matches = facts || before == kAbsent ? Matches(*index.shape, *node.facts) : before >= 0;
    after = !node.facts->ready ? kNotReady : matches ? Count(index, node) : kUnmatched;
  }
  const auto add = [&](int32_t fits, int32_t sign) {
    if (fits == 0) index.full += sign;
    if (fits == kUnmatched) index.unmatched += sign;
    if (fits == kNotReady) index.not_ready += sign;
    if (fits <= 0) return;
    Domain& domain = key.empty() ? index.domains[""] : *index.domain_of[id];
    domain.pods += int64_t{sign} * fits;
    domain.nodes += sign;
    if (fits > 1) domain.several += sign;
  };
  add(before, -1);
  if (!key.empty() && after >= 0 && (facts || index.domain_of[id] == nullptr))
    index.domain_of[id] = &index.domains[node.facts->labels.at(key)];
  index.fits[id] = after;
  add(after, +1);
}

// ---- observations

void Capacity::SetNode(NodeFacts facts) {
  const NodeId id = IdOf(facts.name);
  Node& node = nodes_[id];
  Add(node.allocatable, -1, total_);
  node.allocatable = ToAmounts(facts.allocatable);
  Add(node.allocatable, +1, total_);
  CountLabels(facts, +1);
  if (node.facts) CountLabels(*node.facts, -1);
  node.facts = std::move(facts);
  Changed(id, true);
  PlaceAgain({node.expected.begin(), node.expected.end()});
  PlaceWaitingOn(id);
}

void Capacity::RemoveNode(const std::string& name) {
  const auto it = ids_.find(name);
  if (it == ids_.end()) return;
  const NodeId id = it->second;
  Node& node = nodes_[id];
  if (node.facts) CountLabels(*node.facts, -1);
  node.facts.reset();
  Add(node.allocatable, -1, total_);
  node.allocatable.clear();
  Changed(id, true);
  PlaceAgain({node.expected.begin(), node.expected.end()});
  ForgetIfUnused(id);
}

void Capacity::ForgetIfUnused(NodeId id) {
  Node& node = nodes_[id];
  if (node.facts) return;
  if (std::any_of(node.used.begin(), node.used.end(), [](int64_t amount) { return amount != 0; })) return;
  ids_.erase(node.name);
  claim_.erase(id);
  node = {};
  unused_.push_back(id);
}

void Capacity::SetPod(const std::string& name, const Resources& requests, const std::string& node,
                      bool lasting) {
  const NodeId id = IdOf(node);
  const auto it = pods_.find(name);
  if (it != pods_.end() && it->second.shape == nullptr && it->second.at == id) return;
  RemovePod(name);
  Pod pod;
  pod.requests = Hold(AmountsOfPod(requests));
  pod.at = id;
  pod.lasting = lasting;
  Use(id, *pod.requests, +1, lasting);
  CountSpace(name, pod, +1);
  pods_.emplace(name, std::move(pod));
  MoveExpectedPods(id);
}

void Capacity::SetRequests(const std::string& name, const Resources& requests) {
  const auto it = pods_.find(name);
  if (it == pods_.end() || it->second.shape != nullptr) return;
  Pod& pod = it->second;
  const Amounts* const before = pod.requests;
  const Amounts* const after = Hold(AmountsOfPod(requests));
  if (after != before) {
    UseBy(pod, -1);
    CountSpace(name, pod, -1);
    pod.requests = after;
    UseBy(pod, +1);
    CountSpace(name, pod, +1);
  }
  Drop(before);
  if (after == before) return;
  MoveExpectedPods(pod.at);
  PlaceWaitingOn(pod.at);
}

void Capacity::ExpectPod(const std::string& name, const Shape& shape) {
  if (const auto known = pods_.find(name); known != pods_.end() && known->second.shape == nullptr)
    RemovePod(name);  // a bound pod of the same name was replaced
  const auto [it, added] = pods_.try_emplace(name);
  Pod& pod = it->second;
  pod.reserved = false;
  if (!added) return Reshape(name, pod, shape);
  SetShape(pod, shape);
  Place(name, pod);
}

void Capacity::SetShape(Pod& pod, const Shape& shape) {
  if (pod.requests != nullptr) Drop(pod.requests);
  pod.requests = Hold(AmountsOfPod(shape->requests));
  pod.shape = shape;
}

// Admission, or an exclusion since the reservation, may have changed what the pod needs.
void Capacity::Reshape(const std::string& name, Pod& pod, const Shape& shape) {
  if (pod.shape == shape || *pod.shape == *shape) return;
  Unplace(name, pod);
  SetShape(pod, shape);
  Place(name, pod);
}

void Capacity::SetGated(const std::string& name, const Shape& shape) {
  const auto it = pods_.find(name);
  if (it == pods_.end()) return;
  if (it->second.reserved)
    Reshape(name, it->second, shape);
  else
    RemovePod(name);
}

void Capacity::RemovePod(const std::string& name) {
  const auto it = pods_.find(name);
  if (it == pods_.end()) return;
  const NodeId at = it->second.at;
  Unplace(name, it->second);
  Drop(it->second.requests);
  if (it->second.leaving) leaving_.erase(name);
  pods_.erase(it);
  if (at == kNoNode) return;
  PlaceWaitingOn(at);
  ForgetIfUnused(at);
}

void Capacity::Unreserve(const std::string& name) {
  const auto it = pods_.find(name);
  if (it != pods_.end() && it->second.reserved) RemovePod(name);
}

Capacity::Shape Capacity::ReservedFor(const std::string& name) const {
  const auto it = pods_.find(name);
  const bool has = it != pods_.end() && it->second.reserved && it->second.at != kNoNode;
  return has ? it->second.shape : nullptr;
}

// ---- expected and reserved pods

void Capacity::PutAt(NodeId id, const std::string& name, Pod& pod) {
  pod.at = id;
  nodes_[id].expected.insert(name);
  UseBy(pod, +1);
  CountSpace(name, pod, +1);
}

void Capacity::Unplace(const std::string& name, Pod& pod) {
  if (pod.at == kNoNode) {
    const auto it = unplaced_.find(pod.shape);
    if (it != unplaced_.end() && it->second.erase(name) > 0 && it->second.empty()) unplaced_.erase(it);
    return;
  }
  nodes_[pod.at].expected.erase(name);
  UseBy(pod, -1);
  CountSpace(name, pod, -1);
  pod.at = kNoNode;
}

Capacity::NodeId Capacity::NodeFor(const Shape& shape) {
  const Index& index = IndexFor(shape);
  const auto found =
      std::find_if(index.fits.begin(), index.fits.end(), [](int32_t fits) { return fits > 0; });
  return found == index.fits.end() ? kNoNode : static_cast<NodeId>(found - index.fits.begin());
}

// A pod that was let through has more right to room than a gang that waits, and the scheduler knows no claim.
void Capacity::Place(const std::string& name, Pod& pod) {
  // A reserved place in another domain than those of the gang would be of no use.
  const std::string& key = pod.shape->topology_key;
  if (pod.reserved && !key.empty() && !pod.shape->node_selector.contains(key)) return;
  NodeId id = NodeFor(pod.shape);
  if (id == kNoNode && !claim_.empty()) {
    const WithoutClaim lifted(*this);
    id = NodeFor(pod.shape);
  }
  if (id == kNoNode)
    unplaced_[pod.shape].insert(name);
  else
    PutAt(id, name, pod);
}

void Capacity::PlaceAgain(const std::vector<std::string>& pods) {
  if (pods.empty()) return;
  const NodeId id = pods_.at(pods.front()).at;
  for (const std::string& name : pods) Unplace(name, pods_.at(name));
  for (const std::string& name : pods) {
    Pod& pod = pods_.at(name);
    const WithoutClaim lifted(*this);
    if (pod.reserved && IndexFor(pod.shape).fits[id] > 0)
      PutAt(id, name, pod);
    else
      Place(name, pod);
  }
}

// Moves expected pods to other nodes until the bound pods fit: one of them was expected elsewhere.
void Capacity::MoveExpectedPods(NodeId id) {
  const Node& node = nodes_[id];
  if (!node.facts) return;
  const auto crowded = [&] {
    for (size_t i = 0; i < node.used.size(); ++i)
      if (node.used[i] > At(node.allocatable, i)) return true;
    return false;
  };
  std::vector<std::string> moved;
  while (!node.expected.empty() && crowded()) {
    moved.push_back(*node.expected.begin());
    Unplace(moved.back(), pods_.at(moved.back()));
  }
  for (const std::string& name : moved) Place(name, pods_.at(name));
}

// Places waiting pods on a node that may have room again.
void Capacity::PlaceWaitingOn(NodeId id) {
  if (unplaced_.empty() || vacancies_ > 0) return;
  const WithoutClaim lifted(*this);
  for (auto it = unplaced_.begin(); it != unplaced_.end();) {
    auto& [shape, waiting] = *it;
    while (!waiting.empty() && IndexFor(shape).fits[id] > 0) {
      const std::string name = *waiting.begin();
      waiting.erase(waiting.begin());
      PutAt(id, name, pods_.at(name));
    }
    it = waiting.empty() ? unplaced_.erase(it) : std::next(it);
  }
}

// ---- shares

double Capacity::ShareOf(const std::string& space) const {
  const auto used = spaces_.find(space);
  if (used == spaces_.end()) return 0;
  double largest = 0;
  for (const auto& [name, i] : names_)
    if (name != kPods && At(total_, i) > 0)
      largest =
          std::max(largest, static_cast<double>(At(used->second, i)) / static_cast<double>(At(total_, i)));
  return largest;
}

double Capacity::ShareOf(const PodShape& shape, int32_t pods) const {
  double largest = 0;
  for (const auto& [name, amount] : shape.requests) {
    const auto known = names_.find(name);
    if (known == names_.end() || At(total_, known->second) <= 0) continue;
    const auto total = static_cast<double>(At(total_, known->second));
    largest = std::max(largest, static_cast<double>(amount) * pods / total);
  }
  return largest;
}

// ---- queries

std::string Capacity::Missing(const Index& index, const NamedDomain* largest, int32_t count,
                              bool fixed) const {
  const Domain none;
  const Domain& domain = largest == nullptr ? none : largest->second;
  // Name the scarce resources, accelerators and networks, rather than those that every node has.
  const PodShape& shape = *index.shape;
  std::string wanted;
  for (const bool extended : {true, false}) {
    if (!wanted.empty()) break;
    for (const auto& [name, whole] : shape.requests) {
      const auto implied = shape.implied.find(name);
      const int64_t amount = whole - (implied == shape.implied.end() ? 0 : implied->second);
      if (Extended(name) != extended || amount <= 0) continue;
      wanted += (wanted.empty() ? "" : " and ") + AmountText(name, amount);
    }
  }
  if (wanted.empty()) wanted = "a pod slot";
  const bool one_each = domain.several == 0 || count == 1;
  const std::string& key = shape.topology_key;
  std::string text = one_each ? fmt::format("needs {} on {} nodes", wanted, count)
                              : fmt::format("needs {} for each of {} pods", wanted, count);
  if (!key.empty()) {
    text += fmt::format(" within one {}", key);
    if (largest == nullptr)
      text += "; none has room";
    else if (fixed)
      text += fmt::format("; that of the gang, {}, has room for {}", largest->first, domain.pods);
    else
      text += fmt::format("; the most room has {}: for {}", largest->first, domain.pods);
  } else if (one_each) {
    text += fmt::format("; {} {} room", domain.nodes, domain.nodes == 1 ? "node has" : "nodes have");
  } else {
    text += fmt::format("; there is room for {}", domain.pods);
  }
  std::vector<std::string> others;
  if (index.full > 0) others.push_back(fmt::format("{} full", index.full));
  if (index.unmatched > 0)
    others.push_back(fmt::format("{} kept out by taints, selectors or exclusion", index.unmatched));
  if (index.not_ready > 0) others.push_back(fmt::format("{} not ready", index.not_ready));
  if (!others.empty()) text += fmt::format(" (other nodes: {})", fmt::join(others, ", "));
  if (!shape.note.empty()) text += "; " + shape.note;
  return text;
}

int32_t Capacity::RoomFor(const Shape& shape, int32_t count, const std::vector<std::string>& peers) {
  const NamedDomain* largest = LargestDomain(IndexFor(shape), peers);
  return largest == nullptr ? 0 : static_cast<int32_t>(std::min<int64_t>(largest->second.pods, count));
}

Fit Capacity::FitOf(const Shape& shape, int32_t count, const std::vector<std::string>& peers) {
  const Index& index = IndexFor(shape);
  const NamedDomain* largest = LargestDomain(index, peers);
  const int64_t room = largest == nullptr ? 0 : largest->second.pods;
  if (room >= count) return {count, "", {}};
  const bool fixed = DomainOfPeers(index, peers) != nullptr;
  return {static_cast<int32_t>(room), Missing(index, largest, count, fixed), {}};
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
