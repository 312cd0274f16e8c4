// SPDX-License-Identifier: Apache-2.0

// Looks after the GPUs of this process while it trains: says what they are, and what is wrong with them, as
// soon as it begins and when it is over. Nothing here stops anybody: a GPU that fails does that by itself,
// and this says why.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

struct GpuReport {
  std::string device;  // "NVIDIA H200", or "8 x NVIDIA H200"
  std::string driver;
  std::string nic;                  // the nearest RDMA ports: "mlx5_0:1"; empty: none, or unknown
  std::vector<std::string> faults;  // "gpu 0: its clocks are held down: thermal (hardware)"
  bool operator==(const GpuReport&) const = default;
};

class Nvml;

class GpuMonitor {
  struct Private {};

 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  struct Options {
    std::string library = kLibrary;
    std::string root;     // before /sys, in tests
    std::string visible;  // CUDA_VISIBLE_DEVICES: only these; empty: all
    Duration interval = seconds(10);
  };

  // Calls `report` once before it returns, then on a thread of its own, whenever something has changed; never
  // again once it is destroyed. An error where there is no GPU: kNotFound, kInvalid as of Nvml::Open.
  static Result<std::unique_ptr<GpuMonitor>> Start(const Options& options,
                                                   std::function<void(const GpuReport&)> report);
  GpuMonitor(Private, const Options& options, std::unique_ptr<Nvml> nvml,
             std::function<void(const GpuReport&)> report);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

 private:
  void Run();

  const Options options_;
  const std::unique_ptr<Nvml> nvml_;
  const std::function<void(const GpuReport&)> report_;
  std::vector<Gpu> own_;  // as they were at the start
  GpuReport reported_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// Those that a list such as CUDA_VISIBLE_DEVICES names, by number or by (the beginning of) their UUID.
std::vector<Gpu> VisibleGpus(std::vector<Gpu> gpus, const std::string& list);

// The part that decides; pure. DeviceFaults come and go within seconds (heat, power): one is over when it was
// not seen for a while. Critical errors of the driver stay.
class DeviceFaults {
 public:
  static constexpr Duration kExpiry = seconds(60);

  void Observe(const std::string& fault, Time now);
  void AddPermanent(const std::string& fault);
  std::vector<std::string> Active(Time now);  // sorted

 private:
  std::vector<std::pair<std::string, Time>> until_;
};

}  // namespace ringmaster::inventory
