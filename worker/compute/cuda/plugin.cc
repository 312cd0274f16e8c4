// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/plugin.h"

#include "worker/compute/cuda/cuda_device.h"

extern "C" __attribute__((visibility("default"))) const ringmaster::device::Plugin*
ringmaster_device_plugin() {
  static const ringmaster::device::Plugin kPlugin = {
      .probe = ringmaster::cuda::ProbeDevice,
      .create = ringmaster::cuda::CreateDevice,
      .create_gradient_device = ringmaster::cuda::CreateGradientDevice,
  };
  return &kPlugin;
}
