// SPDX-License-Identifier: Apache-2.0

// A GPU as the device of a trainer: worker/compute/device/device.h over the kernels and the runtime.
//
// Three streams: one for the models, the sums and the update, in the order of the calls; and one for each
// direction in which buckets travel beside it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::cuda {

// The GPU that CreateDevice takes, the first that this process sees, for people. kUnavailable when there is
// none or this process cannot use it.
Result<std::string> ProbeDevice();

// `transport` as device::Options.
Result<std::unique_ptr<device::Device>> CreateDevice(std::string_view transport = "auto");

}  // namespace ringmaster::cuda
