// Which device computes: the CPU, or what the library beside this program offers. Thread rule: main thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "worker/device/device.h"

namespace ringmaster::device {

struct Options {
  std::string choice =
      "auto";       // auto: cuda when it can be had, else cpu | cpu | cuda: an error when it cannot
  int threads = 1;  // of the CPU
};

// Whether Open may take a GPU, without asking for one: it was not told to take the CPU, and the library is
// there.
bool MayTakeGpu(const std::string& choice);

// kUnavailable when cuda was asked for and cannot be had, with why and what to do.
Result<std::unique_ptr<Device>> Open(const Options& options);

}  // namespace ringmaster::device
