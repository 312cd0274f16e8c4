// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/topology.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ringmaster::inventory {
namespace {

// Returns how good it is that `a` and `b` are neighbours in the ring; more is better.
int Affinity(std::span<const PciLocation> gpus, const std::vector<std::vector<int>>& nvlinks, int a, int b) {
  const auto i = static_cast<size_t>(a);
  const auto j = static_cast<size_t>(b);
  const int links = i < nvlinks.size() && j < nvlinks[i].size() ? nvlinks[i][j] : 0;
  constexpr int kBeyondPci = 10;
  return links * kBeyondPci + static_cast<int>(Closeness::kUnknown) -
         static_cast<int>(ClosenessOf(gpus[i], gpus[j]));
}

}  // namespace

const char* ClosenessName(Closeness closeness) {
  switch (closeness) {
    case Closeness::kSwitch:
      return "same PCI switch";
    case Closeness::kRoot:
      return "same PCI root";
    case Closeness::kNumaNode:
      return "same socket";
    case Closeness::kSystem:
      return "another socket";
    case Closeness::kUnknown:
      return "unknown";
  }
  return "unknown";
}

Closeness ClosenessOf(const PciLocation& a, const PciLocation& b) {
  if (a.path.empty() || b.path.empty()) return Closeness::kUnknown;
  const auto [end_a, end_b] = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
  const auto common = end_a - a.path.begin();
  // A common path beyond the root complex, its port and the switch's upstream port is a common switch.
  if (common >= 3) return Closeness::kSwitch;
  if (common >= 1) return Closeness::kRoot;
  if (a.numa_node < 0 || b.numa_node < 0) return Closeness::kUnknown;
  return a.numa_node == b.numa_node ? Closeness::kNumaNode : Closeness::kSystem;
}

std::vector<int> AssignNics(std::span<const PciLocation> gpus, std::span<const PciLocation> nics) {
  std::vector<int> chosen(gpus.size(), -1);
  if (nics.empty()) return chosen;
  // Nearest pairs first, so that a NIC goes to the GPU next to it before one that is far from all NICs.
  std::vector<std::tuple<Closeness, size_t, size_t>> pairs;
  for (size_t g = 0; g < gpus.size(); ++g)
    for (size_t c = 0; c < nics.size(); ++c) pairs.emplace_back(ClosenessOf(gpus[g], nics[c]), g, c);
  std::sort(pairs.begin(), pairs.end());
  std::vector<size_t> users(nics.size(), 0);
  for (size_t left = gpus.size(); left > 0; --left) {
    const auto* best = static_cast<const std::tuple<Closeness, size_t, size_t>*>(nullptr);
    for (const auto& pair : pairs) {
      const auto& [closeness, g, c] = pair;
      if (chosen[g] >= 0) continue;
      if (best == nullptr ||
          std::tuple(closeness, users[c]) < std::tuple(std::get<0>(*best), users[std::get<2>(*best)]))
        best = &pair;
    }
    const auto& [closeness, g, c] = *best;
    chosen[g] = static_cast<int>(c);
    ++users[c];
  }
  return chosen;
}

std::vector<std::vector<int>> NearbyNics(std::span<const PciLocation> gpus,
                                         std::span<const PciLocation> nics) {
  const std::vector<int> first = AssignNics(gpus, nics);
  std::vector<std::vector<int>> near(gpus.size());
  for (size_t g = 0; g < gpus.size() && !nics.empty(); ++g) {
    const Closeness closeness = ClosenessOf(gpus[g], nics[static_cast<size_t>(first[g])]);
    if (closeness == Closeness::kUnknown) continue;
    for (int nic = 0; nic < static_cast<int>(nics.size()); ++nic) {
      const bool free = std::find(first.begin(), first.end(), nic) == first.end();
      if (nic == first[g] || (free && ClosenessOf(gpus[g], nics[static_cast<size_t>(nic)]) == closeness))
        near[g].push_back(nic);
    }
  }
  return near;
}

std::vector<int> RingOrder(std::span<const PciLocation> gpus, const std::vector<std::vector<int>>& nvlinks) {
  const int count = static_cast<int>(gpus.size());
  std::vector<int> order(gpus.size());
  std::iota(order.begin(), order.end(), 0);
  constexpr int kExact = 8;  // up to here all 7! orders are compared
  const auto worth = [&](const std::vector<int>& ring) {
    int sum = 0;
    for (size_t i = 0; i < ring.size(); ++i)
      sum += Affinity(gpus, nvlinks, ring[i], ring[(i + 1) % ring.size()]);
    return sum;
  };
  if (count <= 2) return order;
  if (count <= kExact) {
    std::vector<int> best = order;
    while (std::next_permutation(order.begin() + 1, order.end()))
      if (worth(order) > worth(best)) best = order;
    return best;
  }
  for (int i = 1; i < count; ++i) {
    int best = i;
    for (int j = i + 1; j < count; ++j)
      if (Affinity(gpus, nvlinks, order[static_cast<size_t>(i - 1)], order[static_cast<size_t>(j)]) >
          Affinity(gpus, nvlinks, order[static_cast<size_t>(i - 1)], order[static_cast<size_t>(best)]))
        best = j;
    std::rotate(order.begin() + i, order.begin() + best, order.begin() + best + 1);
  }
  return order;
}

}  // namespace ringmaster::inventory
