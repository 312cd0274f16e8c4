// SPDX-License-Identifier: Apache-2.0

// Capacity: which domains a gang gets, and the reservation of its places.
//
// Required key: of the domains that have room for the whole gang, the one with the least room. The pods that
// a gang creates later go to the domain of the others.
//
// Preferred key: the domains of the gang's other pods first. Then, repeatedly: of the domains that have room
// for all pods that are left, the one with the least room; if there is none, the one with the most room. Pods
// are alike, so no other choice uses fewer domains. Nodes without the label come last. Pods of different
// shapes share one domain if there is one with room for all of them; otherwise each shape goes by this rule,
// one after another. Places are given in the order of the pods, so consecutive ranks are in one domain.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "operator/core/capacity/capacity.h"

namespace ringmaster::core {

// ---- labels

const std::string* Capacity::LabelOf(NodeId id, const std::string& key) const {
  if (!nodes_[id].facts) return nullptr;
  const auto label = nodes_[id].facts->labels.find(key);
  return label == nodes_[id].facts->labels.end() ? nullptr : &label->second;
}

void Capacity::CountLabels(const NodeFacts& facts, int32_t by) {
  facts_ += by;
  for (const auto& [key, value] : facts.labels) {
    const auto label = labels_.try_emplace(key, 0).first;
    if (label->second == 0) ++label_version_;
    label->second += by;
    if (label->second > 0) continue;
    labels_.erase(label);
    ++label_version_;
  }
}

std::optional<std::string> Capacity::DomainOf(const std::string& name, const std::string& key) const {
  const auto pod = pods_.find(name);
  if (pod == pods_.end() || pod->second.at == kNoNode) return std::nullopt;
  const std::string* value = LabelOf(pod->second.at, key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

bool Capacity::IsUnplaced(const std::string& name) const {
  const auto pod = pods_.find(name);
  return pod != pods_.end() && pod->second.at == kNoNode && !pod->second.reserved;
}

// ---- domains

const std::string* Capacity::DomainOfPeers(const Index& index, const std::vector<std::string>& peers) const {
  if (index.domain_of.empty()) return nullptr;
  for (const std::string& name : peers) {
    const auto pod = pods_.find(name);
    if (pod == pods_.end() || pod->second.at == kNoNode) continue;
    if (const std::string* value = LabelOf(pod->second.at, index.shape->topology_key)) return value;
  }
  // A pod that has lost its place may still get a node, in its domain only.
  for (const std::string& name : peers) {
    const auto pod = pods_.find(name);
    if (pod == pods_.end() || pod->second.at != kNoNode || !pod->second.shape) continue;
    const auto& selector = pod->second.shape->node_selector;
    if (const auto value = selector.find(index.shape->topology_key); value != selector.end())
      return &value->second;
  }
  return nullptr;
}

const Capacity::NamedDomain* Capacity::LargestDomain(const Index& index,
                                                     const std::vector<std::string>& peers) const {
  if (const std::string* value = DomainOfPeers(index, peers)) {
    const auto domain = index.domains.find(*value);
    return domain == index.domains.end() ? nullptr : &*domain;
  }
  const NamedDomain* largest = nullptr;
  for (const NamedDomain& domain : index.domains)
    if (domain.second.pods > (largest == nullptr ? 0 : largest->second.pods)) largest = &domain;
  return largest;
}

std::vector<int64_t> Capacity::RoomsOf(const Shape& shape) {
  std::vector<int64_t> rooms;
  for (const auto& [value, domain] : IndexFor(shape).domains)
    if (domain.pods > 0) rooms.push_back(domain.pods);
  std::sort(rooms.begin(), rooms.end());
  return rooms;
}

namespace {

// Returns the names of the domains with at least so much room, those with the least first.
template <class Rooms>
std::vector<std::string> WithRoom(const Rooms& rooms, int64_t pods) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [value, room] : rooms)
    if (room >= std::max<int64_t>(pods, 1)) found.emplace_back(room, value);
  std::sort(found.begin(), found.end());
  std::vector<std::string> values;
  for (auto& [room, value] : found) values.push_back(std::move(value));
  return values;
}

}  // namespace

std::vector<std::string> Capacity::DomainsFor(const Index& index, int64_t pods) {
  std::vector<std::pair<std::string, int64_t>> rooms;
  for (const auto& [value, domain] : index.domains) rooms.emplace_back(value, domain.pods);
  return WithRoom(rooms, pods);
}

std::vector<std::string> Capacity::PreferredFor(const Index& index, int64_t pods) const {
  std::map<std::string, int64_t> rooms;
  for (NodeId id = 0; id < index.fits.size(); ++id) {
    if (index.fits[id] <= 0) continue;
    if (const std::string* value = LabelOf(id, index.shape->preferred_key)) rooms[*value] += index.fits[id];
  }
  return WithRoom(rooms, pods);
}

std::optional<std::string> Capacity::BestFit(const Shape& shape, int32_t pods) {
  const std::vector<std::string> values = DomainsFor(IndexFor(shape), pods);
  return values.empty() ? std::nullopt : std::optional(values.front());
}

// ---- reservations

std::vector<Capacity::NodeId> Capacity::NodesFor(const Index& index, const Restriction* only, int64_t pods,
                                                 const std::vector<std::string>& peers) const {
  const std::string* domain = DomainOfPeers(index, peers);
  const std::string& key = index.shape->preferred_key;
  std::vector<NodeId> nodes;
  int64_t room = 0;
  for (NodeId id = 0; id < index.fits.size() && (room < pods || !key.empty()); ++id) {
    if (index.fits[id] <= 0) continue;
    if (domain != nullptr && *LabelOf(id, index.shape->topology_key) != *domain) continue;
    const std::string* value = only == nullptr ? nullptr : LabelOf(id, only->key);
    if (only != nullptr && (value == nullptr || *value != only->value)) continue;
    nodes.push_back(id);
    room += index.fits[id];
  }
  if (key.empty()) return nodes;
  struct Part {
    int64_t room = 0;
    bool of_peers = false;
    std::vector<NodeId> nodes;
  };
  std::map<std::string, Part> parts;
  std::vector<NodeId> others;
  for (const NodeId id : nodes) {
    const std::string* value = LabelOf(id, key);
    if (value == nullptr) {
      others.push_back(id);
      continue;
    }
    Part& part = parts[*value];
    part.room += index.fits[id];
    part.nodes.push_back(id);
  }
  for (const std::string& peer : peers)
    if (const auto value = DomainOf(peer, key))
      if (const auto part = parts.find(*value); part != parts.end()) part->second.of_peers = true;
  nodes.clear();
  while (!parts.empty()) {
    const auto rank = [&](const Part& part) {
      const bool enough = part.room >= pods;
      return std::tuple(part.of_peers, enough, enough ? -part.room : part.room);
    };
    const auto next = std::max_element(parts.begin(), parts.end(), [&](const auto& a, const auto& b) {
      return rank(a.second) < rank(b.second);
    });
    pods = std::max<int64_t>(pods - next->second.room, 1);
    nodes.insert(nodes.end(), next->second.nodes.begin(), next->second.nodes.end());
    parts.erase(next);
  }
  nodes.insert(nodes.end(), others.begin(), others.end());
  return nodes;
}

std::optional<std::vector<std::string>> Capacity::Fresh(const Ask& ask) const {
  std::vector<std::string> fresh;
  for (const std::string& name : ask.pods) {
    const auto it = pods_.find(name);
    if (it != pods_.end() && it->second.at != kNoNode) continue;
    if (it != pods_.end() && !it->second.reserved) return std::nullopt;
    fresh.push_back(name);
  }
  return fresh;
}

bool Capacity::ReserveIn(const Restriction* only, const Ask& ask, const Shape& shape,
                         const std::vector<std::string>& peers, std::vector<std::string>& placed) {
  const auto fresh = Fresh(ask);
  if (!fresh) return false;
  if (fresh->empty()) return true;
  const Index& index = IndexFor(shape);
  const std::vector<NodeId> nodes = NodesFor(index, only, static_cast<int64_t>(fresh->size()), peers);
  // `index` stays as it is meanwhile: it is brought up to date by its next use only.
  int64_t room = 0;
  for (const NodeId id : nodes) room += index.fits[id];
  if (room < static_cast<int64_t>(fresh->size())) return false;
  auto next = fresh->begin();
  for (auto id = nodes.begin(); id != nodes.end() && next != fresh->end(); ++id) {
    for (int32_t left = index.fits[*id]; left > 0 && next != fresh->end(); --left, ++next)
      PutReserved(*id, *next, shape, placed);
  }
  return true;
}

void Capacity::PutReserved(NodeId id, const std::string& name, const Shape& shape,
                           std::vector<std::string>& placed) {
  Unreserve(name);  // its place was lost
  Pod& pod = pods_[name];
  SetShape(pod, shape);
  pod.reserved = true;
  PutAt(id, name, pod);
  placed.push_back(name);
}

bool Capacity::ReserveAllIn(const Restriction* only, const std::vector<Ask>& asks,
                            const std::vector<std::string>& peers) {
  std::vector<std::string> placed;
  std::vector<std::string> gang = peers;
  for (const Ask& ask : asks) gang.insert(gang.end(), ask.pods.begin(), ask.pods.end());
  for (const Ask& ask : asks) {
    if (ask.rather && ReserveIn(only, ask, ask.rather, gang, placed)) continue;
    if (ReserveIn(only, ask, ask.shape, gang, placed)) continue;
    for (const std::string& pod : placed) Unreserve(pod);
    return false;
  }
  return true;
}

bool Capacity::Reserve(const std::vector<Ask>& asks, const std::vector<std::string>& peers) {
  const Ask* first = nullptr;
  size_t pods = 0;
  bool mixed = false;
  std::vector<std::string> gang = peers;
  for (const Ask& ask : asks) {
    const auto fresh = Fresh(ask);
    if (!fresh) return false;
    gang.insert(gang.end(), ask.pods.begin(), ask.pods.end());
    if (fresh->empty()) continue;
    mixed = first != nullptr;
    if (first != nullptr) continue;
    first = &ask;
    pods = fresh->size();
  }
  if (first == nullptr) return true;
  for (const Shape& shape : {first->rather, first->shape}) {
    if (!shape) continue;
    const Index& index = IndexFor(shape);
    const std::string& required = shape->topology_key;
    if (!required.empty() && DomainOfPeers(index, gang) == nullptr) {
      for (std::string& value : DomainsFor(index, static_cast<int64_t>(pods))) {
        const Restriction only{required, std::move(value)};
        if (ReserveAllIn(&only, asks, peers)) return true;
        if (!mixed) break;
      }
      continue;
    }
    const std::string& preferred = shape->preferred_key;
    if (preferred.empty() || !mixed) continue;
    if (std::any_of(gang.begin(), gang.end(),
                    [&](const std::string& pod) { return DomainOf(pod, preferred).has_value(); }))
      continue;  // its domains come first
    for (std::string& value : PreferredFor(index, static_cast<int64_t>(pods))) {
      const Restriction only{preferred, std::move(value)};
      if (ReserveAllIn(&only, asks, peers)) return true;
    }
  }
  const bool chosen =
      !first->shape->topology_key.empty() && DomainOfPeers(IndexFor(first->shape), gang) == nullptr;
  if (!chosen && ReserveAllIn(nullptr, asks, peers)) return true;
  // Pods of several shapes may fit only as they were claimed.
  return mixed && lifted_ > 0 && ReserveClaimed(asks, peers);
}

}  // namespace ringmaster::core
