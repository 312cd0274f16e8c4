// SPDX-License-Identifier: Apache-2.0

// The memory of the emulated GPU: how much device memory is in use, and whether an address is in device
// memory, in pinned memory, or in neither. Device memory has guard zones (tests/cuda/emulation/memory.h).
// Thread-safe.
#pragma once

#include <cstdint>

namespace ringmaster::cuda::emulation {

// Returns nullptr when the emulated device has too little free memory.
void* AllocateDevice(int64_t bytes);
void* AllocatePinned(int64_t bytes);
void Free(void* memory);

// Registers host memory of another owner as pinned.
void Pin(void* memory, int64_t bytes);
void Unpin(void* memory);

struct DeviceUse {
  int64_t used_bytes = 0;
  int64_t total_bytes = 0;  // RINGMASTER_EMULATED_MEMORY in bytes; default: 16 GiB
};
DeviceUse UseOfDevice();
int64_t PinnedBytes();
void SetDeviceMemory(int64_t total_bytes);

// Return whether [memory, memory + bytes) is within one allocation of that kind.
bool InDevice(const void* memory, int64_t bytes);
bool InPinned(const void* memory, int64_t bytes);

}  // namespace ringmaster::cuda::emulation
