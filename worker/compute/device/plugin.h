// SPDX-License-Identifier: Apache-2.0

// What the library that computes on GPUs offers to the program that loads it. It is a library of its own, so
// that one program serves machines with and without GPUs. Both sides are built from one source tree by one
// compiler and pass C++ objects to each other; the loader checks that first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::device {

// Counted up with every change of what crosses the border: Plugin, Device, engine::Model, Communicator.
inline constexpr uint32_t kPluginInterface = 4;

// Of whoever includes this.
inline constexpr const char* kPluginBuild = __VERSION__ " " RINGMASTER_VERSION;

struct Plugin {
  uint32_t interface = kPluginInterface;  // first, whatever else changes
  const char* build = kPluginBuild;

  // What it would use, for people: "NVIDIA H200, 139.8 GiB". kUnavailable with the reason when this process
  // sees no device that can be used.
  Result<std::string> (*probe)() = nullptr;
  // `transport` is Options::transport.
  Result<std::unique_ptr<Device>> (*create)(std::string_view transport) = nullptr;
};

// Exported by the library as `ringmaster_device_plugin`; the answer is never freed.
using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "ringmaster_device_plugin";

}  // namespace ringmaster::device
