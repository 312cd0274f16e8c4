// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/gang_room.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace ringmaster::core {

GangRoom RoomOf(Capacity& capacity, const std::vector<Capacity::Ask>& gang, std::vector<std::string> peers) {
  GangRoom found;
  found.short_of = gang.size() - 1;
  // A domain that suits one shape may not have room for another one.
  if (gang.size() > 1 && capacity.Reserve(gang, peers)) {
    for (const Capacity::Ask& ask : gang) {
      found.room += static_cast<int32_t>(ask.pods.size());
      for (const std::string& pod : ask.pods) capacity.Unreserve(pod);
    }
    found.peers = std::move(peers);
    return found;
  }
  std::vector<std::string> tentative;
  for (size_t i = 0; i < gang.size(); ++i) {
    const Capacity::Ask& ask = gang[i];
    const auto wanted = static_cast<int32_t>(ask.pods.size());
    Fit more = capacity.FitOf(ask.shape, wanted, peers);
    found.room += more.room;
    found.missing = std::move(more.missing);
    found.short_of = i;
    if (more.room < wanted || i + 1 == gang.size()) break;
    if (!capacity.Reserve(ask.pods, ask.shape, peers)) break;
    tentative.insert(tentative.end(), ask.pods.begin(), ask.pods.end());
    peers.insert(peers.end(), ask.pods.begin(), ask.pods.end());
  }
  for (const std::string& pod : tentative) capacity.Unreserve(pod);
  found.peers = std::move(peers);
  return found;
}

std::vector<int32_t> StrandedPods(Capacity& capacity, const std::vector<BoundToDomain>& pods,
                                  const std::vector<std::string>& peers, const std::string& required) {
  // A gated pod waits for room unless a place is reserved for it. A released one has none that it could use.
  std::map<Capacity::Shape, std::vector<const BoundToDomain*>, Capacity::ByContent> waiting;
  std::vector<const BoundToDomain*> without;
  for (const BoundToDomain& pod : pods) {
    if (pod.gated && !capacity.ReservedFor(pod.pod)) waiting[pod.shape].push_back(&pod);
    if (!pod.gated && pod.refused && capacity.IsUnplaced(pod.pod)) without.push_back(&pod);
  }
  // A pod without a place does not bind the next one in its stead to its domain.
  std::vector<std::string> placed;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(placed),
               [&](const std::string& pod) { return !capacity.IsUnplaced(pod); });
  const bool together = std::any_of(peers.begin(), peers.end(), [&](const std::string& pod) {
    return !required.empty() && capacity.DomainOf(pod, required).has_value();
  });
  for (const auto& [shape, of_shape] : waiting) {
    const Capacity::WithoutClaim lifted(capacity);
    const auto count = static_cast<int32_t>(of_shape.size());
    int32_t room = capacity.RoomFor(shape, count, placed);
    if (room < count && !required.empty() && !together) room = 0;  // all of them go elsewhere
    without.insert(without.end(), of_shape.begin() + room, of_shape.end());
  }
  std::vector<int32_t> stranded;
  for (const BoundToDomain* pod : without)
    if (capacity.RoomFor(pod->free, 1, placed) > 0) stranded.push_back(pod->rank);
  std::sort(stranded.begin(), stranded.end());
  return stranded;
}

}  // namespace ringmaster::core
