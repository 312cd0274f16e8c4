// SPDX-License-Identifier: Apache-2.0

// What libringmaster_cudnn.so offers to the GPU plugin that loads it (load.cc). It is a library of its own so
// that the plugin needs no cuDNN: what this one is linked with is not there on every machine. Both are built
// from one source tree by one compiler, as in worker/compute/device/plugin.h, and the loader checks that
// first.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"

namespace ringmaster::cuda::cudnn {

// Counted up with every change of AttentionLibrary.
inline constexpr uint32_t kPluginInterface = 1;

// Of whoever includes this.
inline constexpr const char* kPluginBuild = __VERSION__ " " RINGMASTER_VERSION;

struct Plugin {
  uint32_t interface = kPluginInterface;  // first, whatever else changes
  const char* build = kPluginBuild;

  // For the calling thread's device. kUnavailable with the reason when cuDNN does not start.
  Result<std::unique_ptr<AttentionLibrary>> (*create)() = nullptr;
};

// Exported by the library as `ringmaster_cudnn_plugin`; the answer is never freed.
using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "ringmaster_cudnn_plugin";

}  // namespace ringmaster::cuda::cudnn
