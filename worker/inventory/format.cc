// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {
namespace {

std::string Bytes(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void Line(std::string* table, const std::string& key, const std::string& value) {
  *table += fmt::format("{:<12}{}\n", key, value);
}

void AddHost(const Inventory& inventory, std::string* table) {
  const Cpu& cpu = inventory.cpu;
  const Memory& memory = inventory.memory;
  Line(table, "host", fmt::format("{} (Linux {})", inventory.host, inventory.kernel));
  std::string limit = cpu.quota > 0 ? fmt::format(", limited to {:g}", cpu.quota) : "";
  Line(table, "cpu", fmt::format("{}: {} of {} usable{}", cpu.model, cpu.usable, cpu.logical, limit));
  Line(table, "", cpu.features.empty() ? "no vector extensions" : Join(cpu.features));
  limit = memory.limit_bytes > 0 ? fmt::format(", limited to {}", Bytes(memory.limit_bytes)) : "";
  Line(table, "memory",
       fmt::format("{} ({} available{}), /dev/shm {}", Bytes(memory.total_bytes),
                   Bytes(memory.available_bytes), limit, Bytes(memory.shm_bytes)));
}

std::string Details(const Gpu& gpu) {
  std::vector<std::string> parts;
  if (!gpu.pci.empty()) parts.push_back(gpu.pci);
  if (gpu.location.numa_node >= 0) parts.push_back(fmt::format("NUMA node {}", gpu.location.numa_node));
  if (gpu.used_bytes > 0) parts.push_back(Bytes(gpu.used_bytes) + " in use");
  if (gpu.temperature_c) parts.push_back(fmt::format("{} C", *gpu.temperature_c));
  if (gpu.clock_mhz && gpu.max_clock_mhz)
    parts.push_back(fmt::format("{} of {} MHz", *gpu.clock_mhz, *gpu.max_clock_mhz));
  for (const std::string& why : gpu.throttled) parts.push_back("clocks reduced: " + why);
  if (gpu.nvlinks_up + gpu.nvlinks_down > 0)
    parts.push_back(fmt::format("{} of {} NVLinks up", gpu.nvlinks_up, gpu.nvlinks_up + gpu.nvlinks_down));
  if (gpu.ecc)
    parts.push_back(*gpu.ecc ? fmt::format("ECC errors {}", gpu.ecc_uncorrected.value_or(0)) : "ECC off");
  if (gpu.mig == true) parts.push_back("MIG");
  return parts.empty() ? "no details" : fmt::format("{}", fmt::join(parts, ", "));
}

void AddGpus(const Inventory& inventory, std::string* table) {
  if (inventory.gpus.empty()) Line(table, "gpu", "none");
  for (const Gpu& gpu : inventory.gpus) {
    Line(table, fmt::format("gpu {}", gpu.index),
         fmt::format("{}, {}, {} (driver {})", gpu.name, Bytes(gpu.memory_bytes), gpu.uuid,
                     inventory.gpu_driver));
    Line(table, "", Details(gpu));
  }
}

void AddRdma(const Inventory& inventory, std::string* table) {
  if (inventory.rdma.empty()) Line(table, "rdma", "none");
  for (const RdmaPort& port : inventory.rdma) {
    std::string text =
        fmt::format("{}:{} {}, {}, {}", port.device, port.port, port.state, port.link_layer, port.rate);
    if (!port.netdev.empty()) text += ", " + port.netdev;
    if (port.numa_node >= 0) text += fmt::format(", NUMA node {}", port.numa_node);
    if (!port.usable) text += ", not in this container";
    Line(table, "rdma", text);
  }
}

void AddTransports(const Inventory& inventory, std::string* table) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> by_name;
  for (const Transport& one : inventory.transports) by_name[{one.kind, one.name}].push_back(one.device);
  for (const auto& [key, devices] : by_name) {
    Line(table, "transport", fmt::format("{:<12}{:<14}{}", key.second, key.first, Join(devices)));
  }
}

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Values that the library did not report are null.
Json ToJson(const Gpu& gpu) {
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"memoryBytes", gpu.memory_bytes},
          {"usedBytes", gpu.used_bytes},
          {"pci", gpu.pci},
          {"numaNode", gpu.location.numa_node},
          {"clockMHz", OrNull(gpu.clock_mhz)},
          {"maxClockMHz", OrNull(gpu.max_clock_mhz)},
          {"temperatureC", OrNull(gpu.temperature_c)},
          {"slowdownC", OrNull(gpu.slowdown_c)},
          {"throttled", gpu.throttled},
          {"ecc", OrNull(gpu.ecc)},
          {"eccCorrected", OrNull(gpu.ecc_corrected)},
          {"eccUncorrected", OrNull(gpu.ecc_uncorrected)},
          {"rowsPending", gpu.rows_pending},
          {"rowsFailed", gpu.rows_failed},
          {"nvlinksUp", gpu.nvlinks_up},
          {"nvlinksDown", gpu.nvlinks_down},
          {"mig", OrNull(gpu.mig)},
          {"pcieWidth", OrNull(gpu.pcie_width)},
          {"maxPcieWidth", OrNull(gpu.max_pcie_width)}};
}

}  // namespace

Json ToJson(const Inventory& inventory) {
  const Cpu& cpu = inventory.cpu;
  const Memory& memory = inventory.memory;
  Json gpus = Json::array();
  for (const Gpu& gpu : inventory.gpus) {
    gpus.push_back(ToJson(gpu));
  }
  Json rdma = Json::array();
  for (const RdmaPort& port : inventory.rdma) {
    rdma.push_back({{"device", port.device},
                    {"port", port.port},
                    {"state", port.state},
                    {"active", port.active()},
                    {"rate", port.rate},
                    {"linkLayer", port.link_layer},
                    {"nodeGuid", port.node_guid},
                    {"netdev", port.netdev},
                    {"numaNode", port.numa_node},
                    {"usable", port.usable},
                    {"gids", port.gids}});
  }
  Json transports = Json::array();
  for (const Transport& one : inventory.transports) {
    transports.push_back({{"name", one.name}, {"device", one.device}, {"kind", one.kind}});
  }
  return {{"host", inventory.host},
          {"kernel", inventory.kernel},
          {"cpu",
           {{"model", cpu.model},
            {"logical", cpu.logical},
            {"usable", cpu.usable},
            {"quota", cpu.quota},
            {"features", cpu.features}}},
          {"memory",
           {{"totalBytes", memory.total_bytes},
            {"availableBytes", memory.available_bytes},
            {"limitBytes", memory.limit_bytes},
            {"shmBytes", memory.shm_bytes}}},
          {"gpus", std::move(gpus)},
          {"gpuDriver", inventory.gpu_driver},
          {"nccl", inventory.nccl.version},
          {"gpuDirect", inventory.gpu_direct},
          {"rdma", std::move(rdma)},
          {"transports", std::move(transports)},
          {"notes", inventory.notes}};
}

std::string ToJsonText(const Inventory& inventory) {
  return ToJson(inventory).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ToTable(const Inventory& inventory) {
  std::string table;
  AddHost(inventory, &table);
  AddGpus(inventory, &table);
  AddRdma(inventory, &table);
  AddTransports(inventory, &table);
  if (!inventory.nccl.version.empty()) Line(&table, "nccl", inventory.nccl.version);
  for (const std::string& note : inventory.notes) Line(&table, "note", note);
  return table;
}

}  // namespace ringmaster::inventory
