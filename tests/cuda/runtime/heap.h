// SPDX-License-Identifier: Apache-2.0

// Which memory the emulated GPU knows: how much of the device is used, and whether an address lies in device
// memory, in pinned memory, or in neither. The memory itself is guarded (tests/cuda/emulation/memory.h). Any
// thread.
#pragma once

#include <cstdint>

namespace ringmaster::cuda::emulation {

// Null when the emulated device has not that much left.
void* AllocateDevice(int64_t bytes);
void* AllocatePinned(int64_t bytes);
void Free(void* memory);

// Somebody else's memory counts as pinned.
void Pin(void* memory, int64_t bytes);
void Unpin(void* memory);

struct DeviceUse {
  int64_t used_bytes = 0;
  int64_t total_bytes = 0;  // RINGMASTER_EMULATED_MEMORY bytes, 16 GiB without it
};
DeviceUse UseOfDevice();
int64_t PinnedBytes();
void SetDeviceMemory(int64_t total_bytes);

// Whether [memory, memory + bytes) lies within one allocation of that kind.
bool InDevice(const void* memory, int64_t bytes);
bool InPinned(const void* memory, int64_t bytes);

}  // namespace ringmaster::cuda::emulation
