// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/gpu_monitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "worker/inventory/device_selection.h"
#include "worker/inventory/health.h"
#include "worker/inventory/nvml.h"

namespace ringmaster::inventory {
namespace {

constexpr Duration kMaxWait = milliseconds(200);  // for an error; the destructor waits at most this long

std::string DeviceName(const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return {};
  return gpus.size() == 1 ? gpus[0].name : fmt::format("{} x {}", gpus.size(), gpus[0].name);
}

// Returns the faults of these GPUs, in the words of `ringmaster devices --health`.
std::vector<std::string> FaultsOf(const Nvml& nvml, const std::string& visible, const std::vector<Gpu>& own) {
  Inventory gpus_only;
  gpus_only.gpus = VisibleGpus(nvml.Gpus(&gpus_only.notes), visible);
  // Keep of the GPUs that do not answer only this process's own: another slot reports its own.
  std::erase_if(gpus_only.notes, [&](const std::string& note) {
    return !visible.empty() && std::ranges::none_of(own, [&](const Gpu& gpu) {
      return note.find(fmt::format("number {} ", gpu.index)) != std::string::npos;
    });
  });
  std::vector<std::string> faults;
  for (const Finding& one : CheckGpus(gpus_only))
    if (one.severity != Severity::kOk) faults.push_back(fmt::format("{}: {}", one.subject, one.what));
  return faults;
}

}  // namespace

void DeviceFaults::Observe(const std::string& fault, Time now) {
  for (auto& [known, until] : until_) {
    if (known != fault) continue;
    until = std::max(until, now + kExpiry);
    return;
  }
  until_.emplace_back(fault, now + kExpiry);
}

void DeviceFaults::AddPermanent(const std::string& fault) {
  std::erase_if(until_, [&](const auto& one) { return one.first == fault; });
  until_.emplace_back(fault, kNever);
}

std::vector<std::string> DeviceFaults::Active(Time now) {
  std::erase_if(until_, [now](const auto& one) { return one.second <= now; });
  std::vector<std::string> all;
  for (const auto& [fault, until] : until_) all.push_back(fault);
  std::ranges::sort(all);
  return all;
}

std::vector<Gpu> VisibleGpus(std::vector<Gpu> gpus, const std::string& list) {
  if (list.empty()) return gpus;
  const std::string all = "," + list + ",";
  std::erase_if(gpus, [&](const Gpu& gpu) {
    if (all.find(fmt::format(",{},", gpu.index)) != std::string::npos) return false;
    for (size_t at = all.find(",GPU-"); at != std::string::npos; at = all.find(",GPU-", at + 1))
      if (gpu.uuid.starts_with(all.substr(at + 1, all.find(',', at + 1) - at - 1))) return false;
    return true;
  });
  return gpus;
}

Result<std::unique_ptr<GpuMonitor>> GpuMonitor::Start(const Options& options,
                                                      std::function<void(const GpuReport&)> report) {
  RM_ASSIGN(auto nvml, Nvml::Open(options.library));
  std::vector<std::string> notes;
  std::vector<Gpu> all = nvml->Gpus(&notes);
  FillLocations(options.root, &all);
  const std::vector<Gpu> gpus = VisibleGpus(all, options.visible);
  if (gpus.empty()) return Error{Code::kNotFound, "no GPU answers"};
  auto watch = std::make_unique<GpuMonitor>(Private{}, options, std::move(nvml), std::move(report));
  const NicSelection nics = SelectNics(all, options.visible, ReadRdma(options.root, &notes));
  watch->own_ = gpus;
  watch->reported_ = {
      DeviceName(gpus), watch->nvml_->Driver(), fmt::format("{}", fmt::join(nics.own, ",")), {}};
  watch->report_(watch->reported_);
  watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  return watch;
}

GpuMonitor::GpuMonitor(Private, const Options& options, std::unique_ptr<Nvml> nvml,
                       std::function<void(const GpuReport&)> report)
    : options_(options), nvml_(std::move(nvml)), report_(std::move(report)) {}

GpuMonitor::~GpuMonitor() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void GpuMonitor::Run() {
  const bool errors = nvml_->WatchErrors(own_);
  DeviceFaults faults;
  Time look_at = ringmaster::Now();
  while (!ending_) {
    const Time now = ringmaster::Now();
    if (now >= look_at) {
      look_at = now + options_.interval;
      for (const std::string& one : FaultsOf(*nvml_, options_.visible, own_)) faults.Observe(one, now);
    }
    if (std::vector<std::string> all = faults.Active(now); all != reported_.faults) {
      reported_.faults = std::move(all);
      report_(reported_);
    }
    const Duration wait = std::min(kMaxWait, options_.interval);
    const auto error = errors ? nvml_->NextError(wait) : std::nullopt;
    if (error) {
      faults.AddPermanent(fmt::format("{}: {}", error->uuid, DescribeXid(error->xid)));
    } else if (!errors) {
      std::this_thread::sleep_for(wait);
    }
  }
}

}  // namespace ringmaster::inventory
