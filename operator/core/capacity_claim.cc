// SPDX-License-Identifier: Apache-2.0

// Capacity: the claim of a gang that waits.
#include <algorithm>
#include <limits>

#include "operator/core/capacity.h"

namespace ringmaster::core {

int32_t Capacity::CountLater(const Index& index, const Node& node) {
  int64_t pods = std::numeric_limits<int32_t>::max();
  for (const auto& [i, amount] : index.requests) {
    const int64_t free = At(node.allocatable, i) - At(node.lasting, i);
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
    int32_t later = 0;  // at least `now`
    bool claimed = false;
  };
  struct Choice {
    std::vector<Place> places;
    int64_t now = 0;
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
    const Place place = {id, index.fits[id], std::max(index.fits[id], CountLater(index, node)),
                         last.contains(id)};
    if (place.later == 0) continue;
    Choice& choice = choices[value];
    choice.places.push_back(place);
    choice.now += place.now;
    choice.later += place.later;
    choice.claimed = choice.claimed || place.claimed;
  }
  // The domain that lacks the least. One that was claimed before stays, so that what became free for the gang
  // is not given away.
  Choice* best = nullptr;
  for (auto& [value, choice] : choices) {
    if (choice.later < pods) continue;
    const bool better = best == nullptr || (choice.claimed && !best->claimed) ||
                        (choice.claimed == best->claimed && choice.now > best->now);
    if (better) best = &choice;
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
  for (const Place& place : best->places) take(place.id, place.later - place.now);
  for (const auto& [id, count] : wanted) Add(requests, count, claim_[id]);
  CountClaim(+1);
  return true;
}

}  // namespace ringmaster::core
