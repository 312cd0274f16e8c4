// SPDX-License-Identifier: Apache-2.0

// The plugin on the emulated GPU. RINGMASTER_EMULATED_LOSS names a file that holds "WAIT:ERROR": the process
// that unlinks the file gets CUDA error ERROR at its WAIT-th wait; the others get no fault.
#include "worker/compute/device/plugin.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "tests/cuda/runtime/faults.h"
#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/cuda_device.h"

namespace ringmaster::cuda {
namespace {

void PlanFault() {
  if (const char* const path = std::getenv("RINGMASTER_EMULATED_LOSS")) {
    const auto text = ReadFile(path);
    long long wait = 0;
    int error = 0;
    if (text.ok() && std::sscanf(text->c_str(), "%lld:%d", &wait, &error) == 2 && ::unlink(path) == 0)
      emulation::FailAtWait(wait, error);
  }
}

Result<std::unique_ptr<device::Device>> CreateWithFault(std::string_view transport) {
  PlanFault();
  return CreateDevice(transport);
}

Result<std::unique_ptr<device::GradientDevice>> CreateGradientDeviceWithFault(std::string_view transport,
                                                                              int index) {
  PlanFault();
  return CreateGradientDevice(transport, index);
}

}  // namespace
}  // namespace ringmaster::cuda

// For emulated libraries (tests/cuda/nccl) and programs (tests/process) that allocate GPU memory.
extern "C" __attribute__((visibility("default"))) void* ringmaster_emulated_allocate(int64_t bytes) {
  return ringmaster::cuda::emulation::AllocateDevice(bytes);
}
extern "C" __attribute__((visibility("default"))) void ringmaster_emulated_free(void* memory) {
  ringmaster::cuda::emulation::Free(memory);
}

extern "C" __attribute__((visibility("default"))) const ringmaster::device::Plugin*
ringmaster_device_plugin() {
  static const ringmaster::device::Plugin kPlugin = {
      .probe = ringmaster::cuda::ProbeDevice,
      .create = ringmaster::cuda::CreateWithFault,
      .create_gradient_device = ringmaster::cuda::CreateGradientDeviceWithFault,
  };
  return &kPlugin;
}
