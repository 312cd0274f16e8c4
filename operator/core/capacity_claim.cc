// SPDX-License-Identifier: Apache-2.0

// Capacity: the claim of a gang that waits, and the pods that may make room for it.
#include <algorithm>
#include <limits>
#include <tuple>

#include "operator/core/capacity.h"

namespace ringmaster::core {

int32_t Capacity::CountWith(const Index& index, const Node& node, const Amounts& used) {
  int64_t pods = std::numeric_limits<int32_t>::max();
  for (const auto& [i, amount] : index.requests) {
    const int64_t free = At(node.allocatable, i) - At(used, i);
    pods = std::min(pods, std::max<int64_t>(free, 0) / amount);
  }
  return static_cast<int32_t>(pods);
}

void Capacity::CountClaim(int64_t sign) {
  for (const auto& [id, amounts] : claim_) {
    Add(amounts, sign, nodes_[id].claimed);
    Changed(id, false);
  }
}

void Capacity::Disclaim() {
  CountClaim(-1);
  claim_.clear();
}

bool Capacity::Claim(const Shape& shape, int32_t pods, const std::vector<std::string>& peers) {
  const std::map<NodeId, Amounts> last = claim_;
  Disclaim();
  const Index& index = IndexFor(shape);
  const std::string* only = DomainOfPeers(index, peers);
  struct Place {
    NodeId id = 0;
    int32_t now = 0;
    int32_t soon = 0;   // once the pods that end soon have ended; at least `now`
    int32_t later = 0;  // once all that end have ended; at least `soon`
    bool claimed = false;
  };
  struct Choice {
    std::vector<Place> places;
    int64_t soon = 0;
    int64_t later = 0;
    bool claimed = false;
  };
  std::map<std::string, Choice> choices;  // by the value of the topology key
  for (NodeId id = 0; id < index.fits.size(); ++id) {
    if (index.fits[id] < 0) continue;  // it is not ready, or does not match
    const Node& node = nodes_[id];
    const std::string value =
        index.domain_of.empty() ? std::string() : node.facts->labels.at(shape->topology_key);
    if (only != nullptr && value != *only) continue;
    Amounts staying = node.used;
    Add(node.leaving, -1, staying);
    const int32_t soon = std::max(index.fits[id], CountWith(index, node, staying));
    const int32_t later = std::max(soon, CountWith(index, node, node.lasting));
    if (later == 0) continue;
    const Place place = {id, index.fits[id], soon, later, last.contains(id)};
    Choice& choice = choices[value];
    choice.places.push_back(place);
    choice.soon += place.soon;
    choice.later += place.later;
    choice.claimed = choice.claimed || place.claimed;
  }
  // The domain that lacks the least. One that was claimed before stays, so that what became free for the gang
  // is not given away, unless another one is about to have room for all.
  const auto rank = [&](const Choice& choice) {
    return std::tuple(choice.soon >= pods, choice.claimed, choice.soon);
  };
  Choice* best = nullptr;
  for (auto& [value, choice] : choices) {
    if (choice.later < pods) continue;
    if (best == nullptr || rank(choice) > rank(*best)) best = &choice;
  }
  if (best == nullptr) return false;
  std::sort(best->places.begin(), best->places.end(), [](const Place& a, const Place& b) {
    if (a.claimed != b.claimed) return a.claimed;
    if (a.later - a.now != b.later - b.now) return a.later - a.now < b.later - b.now;
    return a.id < b.id;
  });
  const Amounts requests = AmountsOfPod(shape->requests);
  std::map<NodeId, int32_t> wanted;
  int32_t left = pods;
  const auto take = [&](NodeId id, int32_t room) {
    const int32_t count = std::min(room, left);
    if (count > 0) wanted[id] += count;
    left -= std::max(count, 0);
  };
  for (const Place& place : best->places) take(place.id, place.now);
  for (const Place& place : best->places) take(place.id, place.soon - place.now);
  for (const Place& place : best->places) take(place.id, place.later - place.soon);
  for (const auto& [id, count] : wanted) Add(requests, count, claim_[id]);
  CountClaim(+1);
  return true;
}

// ---- pods that end soon, and pods that might

void Capacity::SetLeaving(const std::set<std::string>& pods) {
  const auto mark = [this](const std::string& name, bool leaving) {
    const auto it = pods_.find(name);
    if (it == pods_.end() || it->second.leaving == leaving) return;
    it->second.leaving = leaving;
    if (it->second.at != kNoNode) Add(*it->second.requests, leaving ? +1 : -1, nodes_[it->second.at].leaving);
  };
  for (const std::string& name : leaving_)
    if (!pods.contains(name)) mark(name, false);
  leaving_.clear();
  for (const std::string& name : pods) {
    mark(name, true);
    if (pods_.contains(name)) leaving_.insert(name);
  }
}

std::vector<std::pair<Capacity::Shape, int32_t>> Capacity::Unplaced() const {
  std::vector<std::pair<Shape, int32_t>> all;
  for (const auto& [shape, pods] : unplaced_) all.emplace_back(shape, static_cast<int32_t>(pods.size()));
  return all;
}

bool Capacity::Vacancy::Remove(const std::string& name) {
  const auto it = capacity_.pods_.find(name);
  if (it == capacity_.pods_.end() || it->second.at == kNoNode || !removed_.insert(name).second) return false;
  capacity_.UseBy(it->second, -1);
  return true;
}

void Capacity::Vacancy::Restore(const std::string& name) {
  if (removed_.erase(name) > 0) capacity_.UseBy(capacity_.pods_.at(name), +1);
}

Capacity::Vacancy::~Vacancy() {
  while (!removed_.empty()) Restore(std::string(*removed_.begin()));
  capacity_.vacancies_ -= 1;
}

}  // namespace ringmaster::core
