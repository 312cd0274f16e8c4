// SPDX-License-Identifier: Apache-2.0

// Faults that a test injects into the emulated device.
#pragma once

#include <cstdint>

namespace ringmaster::cuda::emulation {

// Makes the `wait`-th wait from now on (1: the next one; waits are Synchronize and Event::Synchronize) fail
// with this CUDA error. When the error loses the device, every later call fails, too. 0 removes the fault
// and repairs the device. RINGMASTER_EMULATED_FAULT=WAIT:ERROR configures a process, "25:700" for an illegal
// address.
void FailAtWait(int64_t wait, int cuda_error);

// Returns the number of waits in this process.
int64_t Waits();

// Sets the number of devices; below 0: no driver. RINGMASTER_EMULATED_DEVICES configures a process. Default:
// 1.
void SetDevices(int count);

}  // namespace ringmaster::cuda::emulation
