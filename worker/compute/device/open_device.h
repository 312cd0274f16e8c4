// SPDX-License-Identifier: Apache-2.0

// Which device computes: the CPU, or what the library beside this program offers. Thread rule: main thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/device/device.h"

namespace ringmaster::device {

struct Options {
  std::string choice =
      "auto";       // auto: cuda when it can be had, else cpu | cpu | cuda: an error when it cannot
  int threads = 1;  // of the CPU
  // spec.network.transport. With "ucx" a GPU's collectives are UCX's, else NCCL's: memory for the one is of
  // no use to the other, so it is told before there is any.
  std::string transport = "auto";
};

// Whether Open may take a GPU, without asking for one: it was not told to take the CPU, and the library is
// there.
bool MayTakeGpu(const std::string& choice);

// kUnavailable when cuda was asked for and cannot be had, with why and what to do.
Result<std::unique_ptr<Device>> Open(const Options& options);

}  // namespace ringmaster::device
