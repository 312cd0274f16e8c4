// SPDX-License-Identifier: Apache-2.0

// Finds and loads the library that computes on GPUs. Thread rule: main thread.
#pragma once

#include <string>

#include "base/result.h"
#include "worker/compute/device/plugin.h"

namespace ringmaster::device {

// RINGMASTER_DEVICE_PLUGIN, or libringmaster_cuda.so beside this program.
std::string PluginPath();

struct Found {
  const Plugin* plugin;
  std::string device;  // what it would use: "NVIDIA H200, 139.8 GiB"
};
// kUnavailable with the reason when there is no library, one of another build, or no GPU for this process.
// The library, once loaded, stays until the process ends.
Result<Found> FindPlugin();

// What `training.device: auto` would take here: "cuda: NVIDIA H200", "cpu (no GPU: ...)".
std::string Describe();

}  // namespace ringmaster::device
