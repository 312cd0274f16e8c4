// SPDX-License-Identifier: Apache-2.0

// What a test makes the emulated device do wrong.
#pragma once

#include <cstdint>

namespace ringmaster::cuda::emulation {

// The `wait`-th wait from now on (1 is the next one; waits are Synchronize and Event::Wait) fails with this
// CUDA error, and so does every later call when the error is one that loses the device. 0 takes the fault
// away and makes the device well again. The environment has the same for a process:
// RINGMASTER_EMULATED_FAULT=WAIT:ERROR, "25:700" for an illegal address.
void FailAtWait(int64_t wait, int cuda_error);

// So many waits there were in this process.
int64_t Waits();

// How many devices there are; below 0: there is no driver (RINGMASTER_EMULATED_DEVICES). One without it.
void SetDevices(int count);

}  // namespace ringmaster::cuda::emulation
