// SPDX-License-Identifier: Apache-2.0

// A GPU as the device of a trainer: implements worker/compute/device/device.h with the kernels and the
// runtime of this folder. Newcomers to this folder start here, and then read models/model.h, gemm.h and
// kernels/.
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

// Describes the GPU that CreateDevice uses, the first one that this process sees. Errors: kUnavailable when
// there is none or this process cannot use it.
Result<std::string> ProbeDevice();

// `transport` is device::Options::transport.
Result<std::unique_ptr<device::Device>> CreateDevice(std::string_view transport = "auto");

}  // namespace ringmaster::cuda
