// SPDX-License-Identifier: Apache-2.0

// A plugin that an older build left next to the program.
#include "worker/compute/device/plugin.h"

extern "C" __attribute__((visibility("default"))) const ringmaster::device::Plugin*
ringmaster_device_plugin() {
  static const ringmaster::device::Plugin kPlugin = {
      .build = "another compiler 0.0.1",
      .probe = [](int) -> ringmaster::Result<std::string> { return std::string("never called"); },
      .create = nullptr,
  };
  return &kPlugin;
}
