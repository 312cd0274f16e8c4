// SPDX-License-Identifier: Apache-2.0

// The part of NVML's stable C interface that is used, declared here so that the build needs no header of
// NVIDIA. A test compares it with nvml.h where a CUDA toolkit is installed (tests/cuda/nvml).
#pragma once

#include <array>

namespace ringmaster::inventory {

using NvmlHandle = struct NvmlDeviceOpaque*;
using NvmlEventSet = struct NvmlEventSetOpaque*;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlPci {
  std::array<char, 16> legacy_bus_id;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  std::array<char, 32> bus_id;
};

struct NvmlEvent {
  NvmlHandle device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

// nvml.h's numbers.
inline constexpr int kClockSm = 1;
inline constexpr int kSensorOfGpu = 0;
inline constexpr int kThresholdSlowdown = 1;
inline constexpr int kCorrected = 0;
inline constexpr int kUncorrected = 1;
inline constexpr int kSinceDriverLoad = 0;
inline constexpr unsigned kMaxLinks = 36;
inline constexpr unsigned long long kXidEvent = 0x8;
inline constexpr int kTimeout = 10;
// Bits of the reasons for reduced clocks.
inline constexpr unsigned long long kPowerCap = 0x04;
inline constexpr unsigned long long kHardwareSlowdown = 0x08;
inline constexpr unsigned long long kThermalSoftware = 0x20;
inline constexpr unsigned long long kThermalHardware = 0x40;
inline constexpr unsigned long long kPowerBrake = 0x80;

struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, NvmlHandle*) = nullptr;
  int (*name)(NvmlHandle, char*, unsigned) = nullptr;
  int (*uuid)(NvmlHandle, char*, unsigned) = nullptr;
  int (*memory)(NvmlHandle, NvmlMemory*) = nullptr;
  // The following are nullptr where this version lacks them.
  int (*pci)(NvmlHandle, NvmlPci*) = nullptr;
  int (*clock)(NvmlHandle, int, unsigned*) = nullptr;
  int (*max_clock)(NvmlHandle, int, unsigned*) = nullptr;
  int (*throttled)(NvmlHandle, unsigned long long*) = nullptr;
  int (*temperature)(NvmlHandle, int, unsigned*) = nullptr;
  int (*threshold)(NvmlHandle, int, unsigned*) = nullptr;
  int (*ecc_mode)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  int (*ecc_errors)(NvmlHandle, int, int, unsigned long long*) = nullptr;
  int (*remapped_rows)(NvmlHandle, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*nvlink_state)(NvmlHandle, unsigned, unsigned*) = nullptr;
  int (*nvlink_remote)(NvmlHandle, unsigned, NvmlPci*) = nullptr;
  int (*mig_mode)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  int (*pcie_width)(NvmlHandle, unsigned*) = nullptr;
  int (*max_pcie_width)(NvmlHandle, unsigned*) = nullptr;
  int (*event_set)(NvmlEventSet*) = nullptr;
  int (*free_events)(NvmlEventSet) = nullptr;
  int (*register_events)(NvmlHandle, unsigned long long, NvmlEventSet) = nullptr;
  int (*wait_event)(NvmlEventSet, NvmlEvent*, unsigned) = nullptr;
};

}  // namespace ringmaster::inventory
