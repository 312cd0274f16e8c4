// SPDX-License-Identifier: Apache-2.0

// The interface of libringmaster_cudnn.so, which the GPU plugin loads (load.cc). It is a separate library
// because the cuDNN that it links is not installed on every machine. Both are built from one source tree by
// one compiler, as in worker/compute/device/plugin.h; the loader checks `interface` and `build` before
// anything else.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"

namespace ringmaster::cuda::cudnn {

// Increment with every change of AttentionLibrary.
inline constexpr uint32_t kPluginInterface = 1;

// The build that includes this header: compiler and version of Ringmaster.
inline constexpr const char* kPluginBuild = __VERSION__ " " RINGMASTER_VERSION;

struct Plugin {
  uint32_t interface = kPluginInterface;  // stays the first member in every version
  const char* build = kPluginBuild;

  // Creates the library for the calling thread's device. Errors: kUnavailable with the reason when cuDNN
  // does not initialise.
  Result<std::unique_ptr<AttentionLibrary>> (*create)() = nullptr;
};

// The library exports this function as `ringmaster_cudnn_plugin`. Its result is never freed.
using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "ringmaster_cudnn_plugin";

}  // namespace ringmaster::cuda::cudnn
