// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/device_selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "worker/inventory/gpu_monitor.h"

namespace ringmaster::inventory {
namespace {

bool IsUsable(const RdmaPort& port) { return port.usable && port.active(); }

}  // namespace

std::vector<int32_t> IndicesInRingOrder(const std::vector<Gpu>& gpus) {
  std::vector<PciLocation> locations;
  std::vector<std::vector<int>> links(gpus.size(), std::vector<int>(gpus.size(), 0));
  for (size_t i = 0; i < gpus.size(); ++i) {
    locations.push_back(gpus[i].location);
    for (size_t j = 0; j < gpus.size(); ++j)
      if (const auto found = gpus[i].nvlink_peers.find(gpus[j].pci); found != gpus[i].nvlink_peers.end())
        links[i][j] = found->second;
  }
  std::vector<int32_t> numbers;
  for (const int at : RingOrder(locations, links)) numbers.push_back(gpus[static_cast<size_t>(at)].index);
  return numbers;
}

std::optional<std::string> GpuForTurn(const std::vector<Gpu>& gpus, const std::optional<std::string>& turn) {
  size_t number = 0;
  if (!turn || gpus.empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(turn->data(), turn->data() + turn->size(), number);
  if (error != std::errc() || end != turn->data() + turn->size()) return std::nullopt;
  if (std::ranges::any_of(gpus, [](const Gpu& gpu) { return gpu.mig.value_or(false); })) return std::nullopt;
  return std::to_string(IndicesInRingOrder(gpus)[number % gpus.size()]);
}

NicSelection SelectNics(const std::vector<Gpu>& gpus, const std::string& visible,
                        const std::vector<RdmaPort>& ports) {
  std::vector<std::string> names;
  std::vector<PciLocation> nics;
  for (const RdmaPort& port : ports) {
    if (!IsUsable(port)) continue;
    names.push_back(fmt::format("{}:{}", port.device, port.port));
    nics.push_back(port.location);
  }
  std::vector<PciLocation> locations;
  for (const Gpu& gpu : gpus) locations.push_back(gpu.location);
  const std::vector<std::vector<int>> near = NearbyNics(locations, nics);
  std::set<int32_t> mine;
  for (const Gpu& gpu : VisibleGpus(gpus, visible)) mine.insert(gpu.index);
  std::set<std::string> own;
  std::set<std::string> pod;
  for (size_t g = 0; g < gpus.size(); ++g) {
    if (near[g].empty()) return {};
    for (const int nic : near[g]) {
      pod.insert(names[static_cast<size_t>(nic)]);
      if (mine.contains(gpus[g].index)) own.insert(names[static_cast<size_t>(nic)]);
    }
  }
  return {{own.begin(), own.end()}, {pod.begin(), pod.end()}};
}

std::vector<std::pair<std::string, std::string>> NicEnvironment(const NicSelection& nics,
                                                                const std::vector<std::string>& interfaces,
                                                                const GetEnv& get) {
  std::vector<std::pair<std::string, std::string>> settings;
  if (nics.own.empty()) return settings;
  if (!get("UCX_NET_DEVICES")) {
    std::vector<std::string> devices = nics.own;
    for (const std::string& interface : interfaces)
      if (interface != "lo") devices.push_back(interface);
    settings.emplace_back("UCX_NET_DEVICES", fmt::format("{}", fmt::join(devices, ",")));
  }
  if (!get("NCCL_IB_HCA"))  // "=": exact names instead of prefixes
    settings.emplace_back("NCCL_IB_HCA", fmt::format("={}", fmt::join(nics.pod, ",")));
  return settings;
}

std::vector<Gpu> FindGpus(const std::string& library, const std::string& root) {
  std::vector<std::string> notes;
  std::vector<Gpu> gpus = QueryGpus(library, &notes).gpus;
  FillLocations(root, &gpus);
  return gpus;
}

}  // namespace ringmaster::inventory
