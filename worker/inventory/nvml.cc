// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <thread>
#include <utility>

#include "worker/inventory/nvml_abi.h"

namespace ringmaster::inventory {
namespace {

struct Throttle {
  unsigned long long bit;
  const char* name;
};
// The reasons that reduce speed unintentionally: not idling, and not clocks that an administrator has set.
constexpr std::array kThrottles = {
    Throttle{kPowerCap, "power cap"}, Throttle{kHardwareSlowdown, "hardware slowdown"},
    Throttle{kThermalSoftware, "thermal (software)"}, Throttle{kThermalHardware, "thermal (hardware)"},
    Throttle{kPowerBrake, "external power brake"}};

using Text = std::array<char, 128>;

std::string TextOf(const Text& buffer) { return {buffer.data(), ::strnlen(buffer.data(), buffer.size())}; }

// NVML prints eight digits of the PCI domain, in upper case; sysfs prints four, in lower case.
std::string SysfsAddress(const NvmlPci& info) {
  std::string address(info.bus_id.data(), ::strnlen(info.bus_id.data(), info.bus_id.size()));
  if (address.size() == 16 && address.starts_with("0000")) address.erase(0, 4);
  std::ranges::transform(address, address.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

}  // namespace

struct Nvml::Table : NvmlFunctions {
  void* library = nullptr;
  NvmlEventSet events = nullptr;
  std::map<NvmlHandle, std::string> watched;  // with their UUIDs, which a lost GPU no longer reports
  bool started = false;

  ~Table() {
    if (events != nullptr) free_events(events);
    if (started) shutdown();
    if (library != nullptr) ::dlclose(library);
  }

  template <class Function>
  void Find(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(::dlsym(library, symbol));
  }
  bool FindAll();
  Gpu Query(unsigned index, NvmlHandle device) const;
};

bool Nvml::Table::FindAll() {
  Find("nvmlInit_v2", &init);
  Find("nvmlShutdown", &shutdown);
  Find("nvmlSystemGetDriverVersion", &driver);
  Find("nvmlDeviceGetCount_v2", &count);
  Find("nvmlDeviceGetHandleByIndex_v2", &by_index);
  Find("nvmlDeviceGetName", &name);
  Find("nvmlDeviceGetUUID", &uuid);
  Find("nvmlDeviceGetMemoryInfo", &memory);
  Find("nvmlDeviceGetPciInfo_v3", &pci);
  Find("nvmlDeviceGetClockInfo", &clock);
  Find("nvmlDeviceGetMaxClockInfo", &max_clock);
  // The old name, which all versions export.
  Find("nvmlDeviceGetCurrentClocksThrottleReasons", &throttled);
  if (throttled == nullptr) Find("nvmlDeviceGetCurrentClocksEventReasons", &throttled);
  Find("nvmlDeviceGetTemperature", &temperature);
  Find("nvmlDeviceGetTemperatureThreshold", &threshold);
  Find("nvmlDeviceGetEccMode", &ecc_mode);
  Find("nvmlDeviceGetTotalEccErrors", &ecc_errors);
  Find("nvmlDeviceGetRemappedRows", &remapped_rows);
  Find("nvmlDeviceGetNvLinkState", &nvlink_state);
  Find("nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvlink_remote);
  Find("nvmlDeviceGetMigMode", &mig_mode);
  Find("nvmlDeviceGetCurrPcieLinkWidth", &pcie_width);
  Find("nvmlDeviceGetMaxPcieLinkWidth", &max_pcie_width);
  Find("nvmlEventSetCreate", &event_set);
  Find("nvmlEventSetFree", &free_events);
  Find("nvmlDeviceRegisterEvents", &register_events);
  Find("nvmlEventSetWait_v2", &wait_event);
  return init && shutdown && driver && count && by_index && name && uuid && memory;
}

Gpu Nvml::Table::Query(unsigned index, NvmlHandle device) const {
  Gpu gpu;
  gpu.index = static_cast<int32_t>(index);
  Text text{};
  if (name(device, text.data(), text.size()) == 0) gpu.name = TextOf(text);
  if (uuid(device, text.data(), text.size()) == 0) gpu.uuid = TextOf(text);
  NvmlMemory bytes = {};
  if (memory(device, &bytes) == 0) {
    gpu.memory_bytes = static_cast<int64_t>(bytes.total);
    gpu.used_bytes = static_cast<int64_t>(bytes.used);
  }
  if (NvmlPci info = {}; pci != nullptr && pci(device, &info) == 0) gpu.pci = SysfsAddress(info);
  const auto number = [device](auto* function, auto... of) -> std::optional<int64_t> {
    unsigned value = 0;
    if (function == nullptr || function(device, of..., &value) != 0) return std::nullopt;
    return value;
  };
  gpu.clock_mhz = number(clock, kClockSm);
  gpu.max_clock_mhz = number(max_clock, kClockSm);
  gpu.temperature_c = number(temperature, kSensorOfGpu);
  gpu.slowdown_c = number(threshold, kThresholdSlowdown);
  gpu.pcie_width = number(pcie_width);
  gpu.max_pcie_width = number(max_pcie_width);
  if (unsigned long long reasons = 0; throttled != nullptr && throttled(device, &reasons) == 0)
    for (const Throttle& one : kThrottles)
      if ((reasons & one.bit) != 0) gpu.throttled.emplace_back(one.name);
  unsigned pending_mode = 0;
  if (unsigned mode = 0; ecc_mode != nullptr && ecc_mode(device, &mode, &pending_mode) == 0)
    gpu.ecc = mode != 0;
  if (unsigned mode = 0; mig_mode != nullptr && mig_mode(device, &mode, &pending_mode) == 0)
    gpu.mig = mode != 0;
  const auto errors = [&](int kind) -> std::optional<int64_t> {
    unsigned long long value = 0;
    if (ecc_errors == nullptr || ecc_errors(device, kind, kSinceDriverLoad, &value) != 0) return std::nullopt;
    return static_cast<int64_t>(value);
  };
  gpu.ecc_corrected = errors(kCorrected);
  gpu.ecc_uncorrected = errors(kUncorrected);
  unsigned fixed = 0;
  unsigned unfixed = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (remapped_rows != nullptr && remapped_rows(device, &fixed, &unfixed, &pending, &failed) == 0) {
    gpu.rows_pending = pending != 0;
    gpu.rows_failed = failed != 0;
  }
  for (unsigned link = 0; link < kMaxLinks && nvlink_state != nullptr; ++link) {
    unsigned active = 0;
    if (nvlink_state(device, link, &active) != 0) continue;  // no such link
    ++(active != 0 ? gpu.nvlinks_up : gpu.nvlinks_down);
    if (NvmlPci remote = {};
        active != 0 && nvlink_remote != nullptr && nvlink_remote(device, link, &remote) == 0)
      ++gpu.nvlink_peers[SysfsAddress(remote)];
  }
  return gpu;
}

Nvml::Nvml(Private) : table_(std::make_unique<Table>()) {}
Nvml::~Nvml() = default;

Result<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  auto nvml = std::make_unique<Nvml>(Private{});
  Table& table = *nvml->table_;
  table.library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (table.library == nullptr) return Error{Code::kNotFound, library + " is not installed"};
  if (!table.FindAll()) return Error{Code::kInvalid, library + " lacks a required function"};
  if (const int error = table.init(); error != 0)
    return Error{Code::kInvalid, fmt::format("NVML does not start (error {}): is the driver loaded?", error)};
  table.started = true;
  return nvml;
}

std::string Nvml::Driver() const {
  Text text{};
  return table_->driver(text.data(), text.size()) == 0 ? TextOf(text) : std::string();
}

std::vector<Gpu> Nvml::Gpus(std::vector<std::string>* notes) const {
  std::vector<Gpu> gpus;
  unsigned count = 0;
  if (table_->count(&count) != 0) return gpus;
  for (unsigned index = 0; index < count; ++index) {
    NvmlHandle device = nullptr;
    if (table_->by_index(index, &device) == 0) {
      gpus.push_back(table_->Query(index, device));
    } else {
      notes->push_back(fmt::format("GPUs: number {} does not answer", index));
    }
  }
  return gpus;
}

bool Nvml::WatchErrors(const std::vector<Gpu>& gpus) {
  Table& table = *table_;
  const bool known = table.event_set && table.free_events && table.register_events && table.wait_event;
  if (!known || (table.events == nullptr && table.event_set(&table.events) != 0)) return false;
  for (const Gpu& gpu : gpus) {
    NvmlHandle device = nullptr;
    if (table.by_index(static_cast<unsigned>(gpu.index), &device) == 0 &&
        table.register_events(device, kXidEvent, table.events) == 0)
      table.watched[device] = gpu.uuid;
  }
  return !table.watched.empty();
}

std::optional<Nvml::DeviceError> Nvml::NextError(Duration timeout) const {
  NvmlEvent data = {};
  const Table& table = *table_;
  if (table.watched.empty()) return std::nullopt;
  const int answer = table.wait_event(table.events, &data, static_cast<unsigned>(ToMs(timeout)));
  // NVML reports a lost GPU immediately and repeatedly: wait here instead.
  if (answer != 0 && answer != kTimeout) std::this_thread::sleep_for(timeout);
  const auto device = table.watched.find(data.device);
  if (answer != 0 || data.type != kXidEvent || device == table.watched.end()) return std::nullopt;
  return DeviceError{device->second, data.data};
}

std::string DescribeXid(uint64_t xid) {
  struct Meaning {
    uint64_t xid;
    const char* text;
  };
  static constexpr std::array kMeanings = {
      Meaning{13, "a kernel made an illegal access: an error in the program, or bad memory if it recurs"},
      Meaning{31, "a kernel accessed an address that is not mapped: an error in the program"},
      Meaning{43, "a kernel was stopped because of its own error"},
      Meaning{45, "the process's work was removed from the GPU, usually after another error"},
      Meaning{48, "memory error that ECC could not correct: reset the GPU; if it recurs, replace the GPU"},
      Meaning{62, "the GPU's internal microcontroller halted: reset the GPU"},
      Meaning{63, "a bad memory row will be replaced at the next reset: drain the node and reset the GPU"},
      Meaning{64, "a bad memory row could not be replaced: replace the GPU"},
      Meaning{74, "NVLink error: reset the GPU; if it recurs, check the links"},
      Meaning{
          79,
          "the GPU has fallen off the bus: drain the node and reboot it; usual causes are power and heat"},
      Meaning{92, "many memory errors that ECC corrected: monitor the GPU"},
      Meaning{94, "memory error that ECC could not correct, contained: only this process is affected"},
      Meaning{95, "memory error that ECC could not correct, not contained: reset the GPU"},
      Meaning{119, "the GPU's system processor does not answer: drain the node and reset the GPU"},
      Meaning{120, "the GPU's system processor failed: drain the node and reset the GPU"},
      Meaning{140, "memory error that ECC could not correct: reset the GPU"},
  };
  for (const Meaning& one : kMeanings)
    if (one.xid == xid) return fmt::format("XID {}: {}", xid, one.text);
  return fmt::format("XID {}: see NVIDIA's list of XID errors", xid);
}

}  // namespace ringmaster::inventory
