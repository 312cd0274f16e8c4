#include "worker/devices/cards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "worker/devices/watch.h"

namespace ringmaster::devices {
namespace {

bool Works(const RdmaPort& port) { return port.usable && port.active(); }

}  // namespace

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

Cards FindCards(const std::string& library, const std::string& root, const std::string& visible) {
  std::vector<std::string> notes;
  std::vector<Gpu> gpus = AskGpus(library, &notes).gpus;
  if (gpus.empty()) return {};
  for (Gpu& gpu : gpus) gpu.place = PlaceOf(root, gpu.pci);
  return NearCards(gpus, visible, ReadRdma(root, &notes));
}

}  // namespace ringmaster::devices
