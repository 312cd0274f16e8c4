// SPDX-License-Identifier: Apache-2.0

// Opens the device that the configuration selects: the CPU, or the GPU of the plugin. Not thread-safe: main
// thread only.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::device {

struct Options {
  // spec.training.device. "auto": cuda if available, else cpu. "cpu". "cuda": an error if not available.
  std::string choice = "auto";
  int threads = 1;  // of the host device
  // spec.network.transport. With "ucx" a GPU uses UCX for collectives, else NCCL. The two need memory that is
  // allocated differently, so the transport must be known before the first allocation.
  std::string transport = "auto";
};

// Errors: kUnavailable, with the reason and the remedy, when `choice` is "cuda" and no GPU is available.
Result<std::unique_ptr<Device>> Open(const Options& options);

}  // namespace ringmaster::device
