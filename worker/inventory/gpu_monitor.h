// SPDX-License-Identifier: Apache-2.0

// Monitors the GPUs of this process during training: reports what they are, and each device fault when it
// starts and when it is over. It stops nothing: a failing GPU ends the training by itself, and the monitor
// reports why.
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
  std::vector<std::string> faults;  // "gpu 0: clocks are reduced: thermal (hardware)"
  bool operator==(const GpuReport&) const = default;
};

class Nvml;

class GpuMonitor {
  struct Private {};

 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  struct Options {
    std::string library = kLibrary;
    std::string root;     // prefix of /sys, in tests
    std::string visible;  // CUDA_VISIBLE_DEVICES: monitor these; empty: all
    Duration interval = seconds(10);
  };

  // Calls `report` once before it returns, then on its own thread whenever something has changed, until it is
  // destroyed. Errors: kNotFound without a GPU; else those of Nvml::Open.
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

// Returns the GPUs that a list such as CUDA_VISIBLE_DEVICES names, by index or by (a prefix of) their UUID.
std::vector<Gpu> VisibleGpus(std::vector<Gpu> gpus, const std::string& list);

// The faults to report. Some come and go within seconds (heat, power), so a fault is over when it was not
// observed for kExpiry. Critical errors of the driver are permanent. Pure.
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
