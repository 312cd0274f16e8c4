// SPDX-License-Identifier: Apache-2.0

// The GPUs that this process can use, and the selection of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::cuda {

struct DeviceProperties {
  int index = 0;     // index within CUDA_VISIBLE_DEVICES
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-2f..."
  std::string pci;   // "0000:18:00.0"
  int64_t memory_bytes = 0;
  int architecture = 0;  // 90 for sm_90
  int multiprocessors = 0;
  int driver = 0;   // newest CUDA version of the driver: 13000 is 13.0
  int runtime = 0;  // CUDA version of the build
  bool operator==(const DeviceProperties&) const = default;
};

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// Returns all GPUs; empty when there is none. Errors: kUnavailable with the reason when no driver is usable.
Result<std::vector<DeviceProperties>> ListDevices();

// Makes the device current for the calling thread (cudaSetDevice). Every thread that enqueues, synchronizes
// or allocates calls this first. Errors: kInvalid when this build has no code for the architecture.
Result<DeviceProperties> BindDevice(int index);

// Does the same for a GPU that BindDevice has accepted, and takes less than a microsecond.
Status UseDevice(int index);

// Returns the memory of the calling thread's device.
Result<DeviceMemory> GetDeviceMemory();

}  // namespace ringmaster::cuda
