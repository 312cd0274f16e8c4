// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/open_device.h"

#include <fmt/format.h>

#include "base/log.h"
#include "worker/compute/device/host_device.h"
#include "worker/compute/device/load_plugin.h"

namespace ringmaster::device {

Result<std::unique_ptr<Device>> Open(const Options& options) {
  if (options.choice == "cpu") return NewHostDevice(options.threads);
  const auto found = FindPlugin();
  if (found.ok()) return found->plugin->create(options.transport);
  if (options.choice == "auto") {
    // A build without CUDA has no plugin. Where one is installed, a missing GPU may be a fault of the
    // machine.
    if (MayUseGpu(options.choice)) log::Warn("no GPU is used: {}", found.error().message);
    return NewHostDevice(options.threads);
  }
  return Error{Code::kUnavailable,
               fmt::format("no GPU for spec.training.device cuda, or for a pod that requests one: {}. See "
                           "`ringmaster devices` on this machine, or set the field to auto or cpu",
                           found.error().message)};
}

}  // namespace ringmaster::device
