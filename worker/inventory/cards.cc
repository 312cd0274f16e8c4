// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/cards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "worker/inventory/watch.h"

namespace ringmaster::inventory {
namespace {

bool Works(const RdmaPort& port) { return port.usable && port.active(); }

}  // namespace

std::vector<int32_t> NumbersInRing(const std::vector<Gpu>& gpus) {
  std::vector<Place> places;
  std::vector<std::vector<int>> links(gpus.size(), std::vector<int>(gpus.size(), 0));
  for (size_t i = 0; i < gpus.size(); ++i) {
    places.push_back(gpus[i].place);
    for (size_t j = 0; j < gpus.size(); ++j)
      if (const auto found = gpus[i].nvlink_peers.find(gpus[j].pci); found != gpus[i].nvlink_peers.end())
        links[i][j] = found->second;
  }
  std::vector<int32_t> numbers;
  for (const int at : RingOrder(places, links)) numbers.push_back(gpus[static_cast<size_t>(at)].index);
  return numbers;
}

std::optional<std::string> GpuOfTurn(const std::vector<Gpu>& gpus, const std::optional<std::string>& turn) {
  size_t number = 0;
  if (!turn || gpus.empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(turn->data(), turn->data() + turn->size(), number);
  if (error != std::errc() || end != turn->data() + turn->size()) return std::nullopt;
  if (std::ranges::any_of(gpus, [](const Gpu& gpu) { return gpu.mig.value_or(false); })) return std::nullopt;
  return std::to_string(NumbersInRing(gpus)[number % gpus.size()]);
}

Cards NearCards(const std::vector<Gpu>& gpus, const std::string& visible,
                const std::vector<RdmaPort>& ports) {
  std::vector<std::string> names;
  std::vector<Place> cards;
  for (const RdmaPort& port : ports) {
    if (!Works(port)) continue;
    names.push_back(fmt::format("{}:{}", port.device, port.port));
    cards.push_back(port.place);
  }
  std::vector<Place> places;
  for (const Gpu& gpu : gpus) places.push_back(gpu.place);
  const std::vector<std::vector<int>> near = CardsNear(places, cards);
  std::set<int32_t> mine;
  for (const Gpu& gpu : VisibleGpus(gpus, visible)) mine.insert(gpu.index);
  std::set<std::string> own;
  std::set<std::string> pod;
  for (size_t g = 0; g < gpus.size(); ++g) {
    if (near[g].empty()) return {};
    for (const int card : near[g]) {
      pod.insert(names[static_cast<size_t>(card)]);
      if (mine.contains(gpus[g].index)) own.insert(names[static_cast<size_t>(card)]);
    }
  }
  return {{own.begin(), own.end()}, {pod.begin(), pod.end()}};
}

std::vector<std::pair<std::string, std::string>> CardSettings(const Cards& cards,
                                                              const std::vector<std::string>& interfaces,
                                                              const GetEnv& get) {
  std::vector<std::pair<std::string, std::string>> settings;
  if (cards.own.empty()) return settings;
  if (!get("UCX_NET_DEVICES")) {
    std::vector<std::string> devices = cards.own;
    for (const std::string& interface : interfaces)
      if (interface != "lo") devices.push_back(interface);
    settings.emplace_back("UCX_NET_DEVICES", fmt::format("{}", fmt::join(devices, ",")));
  }
  if (!get("NCCL_IB_HCA"))  // "=": these names, not all that begin so
    settings.emplace_back("NCCL_IB_HCA", fmt::format("={}", fmt::join(cards.pod, ",")));
  return settings;
}

std::vector<Gpu> FindGpus(const std::string& library, const std::string& root) {
  std::vector<std::string> notes;
  std::vector<Gpu> gpus = AskGpus(library, &notes).gpus;
  Locate(root, &gpus);
  return gpus;
}

}  // namespace ringmaster::inventory
