// SPDX-License-Identifier: Apache-2.0

// The interface of the GPU plugin, a separate shared library, so that one program serves machines with and
// without GPUs. Program and plugin are built from one source tree by one compiler and pass C++ objects to
// each other; the loader checks `interface` and `build` before anything else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::device {

// Increment with every change of a type that crosses the interface: Plugin, Device, engine::Model,
// Communicator.
inline constexpr uint32_t kPluginInterface = 6;

// The build that includes this header: compiler and version of Ringmaster.
inline constexpr const char* kPluginBuild = __VERSION__ " " RINGMASTER_VERSION;

struct Plugin {
  uint32_t interface = kPluginInterface;  // stays the first member in every version
  const char* build = kPluginBuild;

  // Returns a GPU, for people: "NVIDIA H200, 139.8 GiB"; `create` uses GPU 0. Errors: kUnavailable with the
  // reason when this process sees no usable GPU of this number.
  Result<std::string> (*probe)(int index) = nullptr;
  // `transport` is Options::transport.
  Result<std::unique_ptr<Device>> (*create)(std::string_view transport) = nullptr;
  Result<std::unique_ptr<GradientDevice>> (*create_gradient_device)(std::string_view transport,
                                                                    int index) = nullptr;
};

// The plugin exports this function as `ringmaster_device_plugin`. Its result is never freed.
using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "ringmaster_device_plugin";

}  // namespace ringmaster::device
