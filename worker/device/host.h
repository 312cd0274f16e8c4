// The CPU as a device: worker/engine, worker/numerics and worker/optimizer on ordinary memory. Everything has
// happened when a call returns, and nothing travels.
#pragma once

#include <memory>

#include "worker/device/device.h"

namespace ringmaster::device {

// Updates are spread over `threads` threads; models have theirs from their configuration.
std::unique_ptr<Device> NewHostDevice(int threads);

}  // namespace ringmaster::device
