// SPDX-License-Identifier: Apache-2.0

// Finds and loads the GPU plugin (plugin.h). Not thread-safe: main thread only.
#pragma once

#include <string>

#include "base/result.h"
#include "worker/compute/device/plugin.h"

namespace ringmaster::device {

// RINGMASTER_DEVICE_PLUGIN, or libringmaster_cuda.so next to this program; next to libringmaster.so, if this
// code is a part of it.
std::string PluginPath();

// Whether a worker may use a GPU, decided without touching one: `choice` (spec.training.device) allows it and
// the plugin exists.
bool MayUseGpu(const std::string& choice);

struct FoundPlugin {
  const Plugin* plugin;
  std::string device;  // the GPU it uses: "NVIDIA H200, 139.8 GiB"
};
// Errors: kUnavailable with the reason when there is no plugin, the plugin comes from another build, or this
// process sees no GPU of number `index`. A loaded plugin stays loaded until the process exits.
Result<FoundPlugin> FindPlugin(int index = 0);

// The device that `training.device: auto` selects on this machine: "cuda: NVIDIA H200", "cpu (no GPU: ...)".
std::string DescribeAutoDevice();

}  // namespace ringmaster::device
