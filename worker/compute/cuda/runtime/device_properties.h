// SPDX-License-Identifier: Apache-2.0

// Which GPUs this process can use, and which one it uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::cuda {

struct DeviceProperties {
  int index = 0;     // as the process sees it, after CUDA_VISIBLE_DEVICES
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-2f..."
  std::string pci;   // "0000:18:00.0"
  int64_t memory_bytes = 0;
  int architecture = 0;  // 90 for sm_90
  int multiprocessors = 0;
  int driver = 0;   // the newest CUDA that the driver serves: 13000 is 13.0
  int runtime = 0;  // the CUDA that this was built with
  bool operator==(const DeviceProperties&) const = default;
};

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// All of them, none when there is no GPU; kUnavailable with the reason when there is no usable driver.
Result<std::vector<DeviceProperties>> ListDevices();

// Makes the device that of the calling thread: every thread that enqueues, waits or allocates does so first.
// kInvalid when this build has no code for its architecture.
Result<DeviceProperties> BindDevice(int index);

// Of the calling thread's device.
Result<DeviceMemory> GetDeviceMemory();

}  // namespace ringmaster::cuda
