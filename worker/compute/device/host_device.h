// SPDX-License-Identifier: Apache-2.0

// The CPU as a device: worker/compute/engine, worker/compute/numerics and worker/compute/optimizer on
// ordinary memory. Everything has happened when a call returns, and nothing travels.
#pragma once

#include <memory>

#include "worker/compute/device/device.h"

namespace ringmaster::device {

// Updates are spread over `threads` threads; models have theirs from their configuration.
std::unique_ptr<Device> NewHostDevice(int threads);

}  // namespace ringmaster::device
