// SPDX-License-Identifier: Apache-2.0

// The CPU as a device: worker/compute/engine, numerics and optimizer on ordinary memory. Every call returns
// after its work is done, and host and device memory are the same.
#pragma once

#include <memory>

#include "worker/compute/device/device.h"

namespace ringmaster::device {

// Updates use `threads` threads; a model takes its thread count from its configuration.
std::unique_ptr<Device> NewHostDevice(int threads);

}  // namespace ringmaster::device
