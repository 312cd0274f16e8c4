// SPDX-License-Identifier: Apache-2.0

// Capacity: the claim of a gang that waits, and the pods that may make room for it.
#include <algorithm>
#include <limits>
#include <tuple>

#include "operator/core/capacity/capacity.h"

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
  claimed_places_.clear();
}

std::vector<std::string> Capacity::ClaimableDomains(const Need& need, const std::vector<std::string>& peers,
                                                    const ClaimedPlaces& last) {
  const Index& index = IndexFor(need.shape);
  if (index.domain_of.empty()) return {""};
  if (const std::string* only = DomainOfPeers(index, peers)) return {*only};
  struct Choice {
    std::string value;
    int64_t soon = 0;   // room once the pods that end soon have ended
    int64_t later = 0;  // once all that end have ended
    bool claimed = false;
  };
  std::map<std::string, Choice> choices;
  for (NodeId id = 0; id < index.fits.size(); ++id) {
    if (index.fits[id] < 0) continue;  // it is not ready, or does not match
    const ClaimPlace place = ClaimPlaceOn(index, id, nullptr);
    const std::string& value = *LabelOf(id, need.shape->topology_key);
    Choice& choice = choices.try_emplace(value, Choice{value}).first->second;
    choice.soon += place.soon;
    choice.later += place.later;
    choice.claimed = choice.claimed || (place.later > 0 && IsIn(last, id));
  }
  // The domain that lacks the least. One that was claimed before stays, so that what became free for the gang
  // is not given away, unless another one is about to have room for all.
  std::vector<Choice> found;
  for (auto& [value, choice] : choices)
    if (choice.later >= need.pods) found.push_back(std::move(choice));
  const auto rank = [&](const Choice& choice) {
    return std::tuple(choice.soon >= need.pods, choice.claimed, choice.soon);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Choice& a, const Choice& b) { return rank(a) > rank(b); });
  std::vector<std::string> values;
  for (Choice& choice : found) values.push_back(std::move(choice.value));
  return values;
}

Capacity::ClaimPlace Capacity::ClaimPlaceOn(const Index& index, NodeId id, const Amounts* more) const {
  const Node& node = nodes_[id];
  const auto count = [&](const Amounts& used) {
    if (more == nullptr) return CountWith(index, node, used);
    Amounts with = used;
    Add(*more, +1, with);
    return CountWith(index, node, with);
  };
  ClaimPlace place;
  place.id = id;
  place.now = more == nullptr ? index.fits[id] : std::min(index.fits[id], count(node.used));
  Amounts staying = node.used;
  Add(node.leaving, -1, staying);
  place.soon = std::max(place.now, count(staying));
  place.later = std::max(place.soon, count(node.lasting));
  return place;
}

bool Capacity::IsIn(const ClaimedPlaces& places, NodeId id) {
  return std::any_of(places.begin(), places.end(),
                     [&](const auto& need) { return need.second.contains(id); });
}

bool Capacity::ClaimIn(const std::string& domain, const std::vector<Need>& needs, const ClaimedPlaces& last) {
  // With what the last claim has for the needs that follow: no need takes the places of another.
  Claims claims;
  const auto claim = [&](const Need& need, const std::map<NodeId, int32_t>& nodes, int64_t sign) {
    const Amounts requests = AmountsOfPod(need.shape->requests);
    for (const auto& [id, count] : nodes) Add(requests, sign * count, claims[id]);
  };
  const bool same =
      std::equal(needs.begin(), needs.end(), last.begin(), last.end(),
                 [](const Need& need, const auto& places) { return need.shape == places.first; });
  if (same)
    for (size_t i = 0; i < needs.size(); ++i) claim(needs[i], last[i].second, +1);
  ClaimedPlaces chosen;
  for (const Need& need : needs) {
    const std::map<NodeId, int32_t>* kept = same ? &last[chosen.size()].second : nullptr;
    if (kept != nullptr) claim(need, *kept, -1);
    std::map<NodeId, int32_t>& nodes = chosen.emplace_back(need.shape, std::map<NodeId, int32_t>()).second;
    const Index& index = IndexFor(need.shape);
    std::vector<ClaimPlace> places;
    for (NodeId id = 0; id < index.fits.size(); ++id) {
      if (index.fits[id] < 0) continue;
      if (!index.domain_of.empty() && *LabelOf(id, need.shape->topology_key) != domain) continue;
      const auto claimed = claims.find(id);
      ClaimPlace place = ClaimPlaceOn(index, id, claimed == claims.end() ? nullptr : &claimed->second);
      place.claimed = kept != nullptr ? kept->contains(id) : IsIn(last, id);
      if (place.later > 0) places.push_back(place);
    }
    std::sort(places.begin(), places.end(), [](const ClaimPlace& a, const ClaimPlace& b) {
      if (a.claimed != b.claimed) return a.claimed;
      if (a.later - a.now != b.later - b.now) return a.later - a.now < b.later - b.now;
      return a.id < b.id;
    });
    int32_t left = need.pods;
    // Takes places on the node until the need has so many there.
    const auto take_up_to = [&](NodeId id, int32_t room) {
      const auto taken = nodes.find(id);
      const int32_t count = std::min(room - (taken == nodes.end() ? 0 : taken->second), left);
      if (count <= 0) return;
      nodes[id] += count;
      left -= count;
    };
    for (const ClaimPlace& place : places) take_up_to(place.id, place.now);
    for (const ClaimPlace& place : places) take_up_to(place.id, place.soon);
    // The pods on the places that are claimed already have begun before those that came later.
    for (const ClaimPlace& place : places)
      if (kept != nullptr && place.claimed) take_up_to(place.id, std::min(place.later, kept->at(place.id)));
    for (const ClaimPlace& place : places) take_up_to(place.id, place.later);
    if (left > 0) return false;
    claim(need, nodes, +1);
  }
  claim_ = std::move(claims);
  claimed_places_ = std::move(chosen);
  CountClaim(+1);
  return true;
}

bool Capacity::Claim(const std::vector<Need>& needs, const std::vector<std::string>& peers) {
  const ClaimedPlaces last = claimed_places_;
  Disclaim();
  const std::vector<std::string> domains = ClaimableDomains(needs.front(), peers, last);
  return std::any_of(domains.begin(), domains.end(), [&](const std::string& domain) {
    // The first kind of pods may take the claimed nodes that a later kind needs.
    return ClaimIn(domain, needs, last) || (needs.size() > 1 && !last.empty() && ClaimIn(domain, needs, {}));
  });
}

bool Capacity::ReserveClaimed(const std::vector<Ask>& asks, const std::vector<std::string>& peers) {
  std::vector<std::string> gang = peers;
  for (const Ask& ask : asks) gang.insert(gang.end(), ask.pods.begin(), ask.pods.end());
  std::vector<std::string> placed;
  const auto reserve = [&](const Ask& ask) {
    const auto fresh = Fresh(ask);
    if (!fresh) return false;
    auto next = fresh->begin();
    for (const auto& [shape, nodes] : claimed_places_) {
      if (shape != ask.shape) continue;
      const Index& index = IndexFor(shape);
      const std::string* domain = DomainOfPeers(index, gang);
      for (auto at = nodes.begin(); at != nodes.end() && next != fresh->end(); ++at) {
        const auto& [id, count] = *at;
        if (domain != nullptr && index.domain_of[id] != nullptr &&
            *LabelOf(id, shape->topology_key) != *domain)
          continue;
        for (int32_t left = std::min(count, index.fits[id]); left > 0 && next != fresh->end(); --left, ++next)
          PutReserved(id, *next, shape, placed);
      }
    }
    return next == fresh->end();
  };
  if (std::all_of(asks.begin(), asks.end(), reserve)) return true;
  for (const std::string& pod : placed) Unreserve(pod);
  return false;
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
