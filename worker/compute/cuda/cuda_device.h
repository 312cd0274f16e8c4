// SPDX-License-Identifier: Apache-2.0

// A GPU as the device of a trainer, or of a program that sums its gradients: implements
// worker/compute/device/device.h with the kernels and the runtime of this folder. Newcomers to this folder
// start here, and then read models/model.h, gemm.h and kernels/.
//
// Uses four streams: the compute stream for models, sums and updates, in the order of the calls; one stream
// per copy direction, so that copies of buckets overlap with computation; and the stream of the collectives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::cuda {

// Describes a GPU; 0 is the first one that this process sees. Errors: kUnavailable when there is none of this
// number or this process cannot use it.
Result<std::string> ProbeDevice(int index = 0);

// Opens GPU 0. `transport` is device::Options::transport.
Result<std::unique_ptr<device::Device>> CreateDevice(std::string_view transport = "auto");

// Opens a GPU that other software of this process computes on, without what models need.
Result<std::unique_ptr<device::GradientDevice>> CreateGradientDevice(std::string_view transport, int index);

}  // namespace ringmaster::cuda
