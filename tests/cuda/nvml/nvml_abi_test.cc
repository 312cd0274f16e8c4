// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/nvml_abi.h"

#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>
#include <type_traits>

namespace ringmaster::inventory {
namespace {

template <class T>
concept Complete = requires {
  sizeof(T);
};

// Types that are passed in the same way: values of one size, and pointers to them. Handles are opaque.
template <class Ours, class Theirs>
constexpr bool kAlike = sizeof(Ours) == sizeof(Theirs);
template <class Ours, class Theirs>
constexpr bool kAlike<Ours*, Theirs*> = [] {
  if constexpr (Complete<Ours> && Complete<Theirs>)
    return sizeof(Ours) == sizeof(Theirs);
  else
    return Complete<Ours> == Complete<Theirs>;
}();

template <class Ours, class Theirs>
constexpr bool kSameCall = false;
template <class R, class... A, class S, class... B>
constexpr bool kSameCall<R (*)(A...), S (*)(B...)> = [] {
  if constexpr (sizeof...(A) == sizeof...(B))
    return sizeof(R) == sizeof(S) && (kAlike<A, B> && ...);
  else
    return false;
}();

#define SAME_CALL(member, function) \
  static_assert(kSameCall<decltype(NvmlFunctions::member), decltype(&function)>, #function)

SAME_CALL(init, nvmlInit_v2);
SAME_CALL(shutdown, nvmlShutdown);
SAME_CALL(driver, nvmlSystemGetDriverVersion);
SAME_CALL(count, nvmlDeviceGetCount_v2);
SAME_CALL(by_index, nvmlDeviceGetHandleByIndex_v2);
SAME_CALL(name, nvmlDeviceGetName);
SAME_CALL(uuid, nvmlDeviceGetUUID);
SAME_CALL(memory, nvmlDeviceGetMemoryInfo);
SAME_CALL(pci, nvmlDeviceGetPciInfo_v3);
SAME_CALL(clock, nvmlDeviceGetClockInfo);
SAME_CALL(max_clock, nvmlDeviceGetMaxClockInfo);
SAME_CALL(throttled, nvmlDeviceGetCurrentClocksThrottleReasons);
SAME_CALL(throttled, nvmlDeviceGetCurrentClocksEventReasons);
SAME_CALL(temperature, nvmlDeviceGetTemperature);
SAME_CALL(threshold, nvmlDeviceGetTemperatureThreshold);
SAME_CALL(ecc_mode, nvmlDeviceGetEccMode);
SAME_CALL(ecc_errors, nvmlDeviceGetTotalEccErrors);
SAME_CALL(remapped_rows, nvmlDeviceGetRemappedRows);
SAME_CALL(nvlink_state, nvmlDeviceGetNvLinkState);
SAME_CALL(nvlink_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2);
SAME_CALL(mig_mode, nvmlDeviceGetMigMode);
SAME_CALL(pcie_width, nvmlDeviceGetCurrPcieLinkWidth);
SAME_CALL(max_pcie_width, nvmlDeviceGetMaxPcieLinkWidth);
SAME_CALL(event_set, nvmlEventSetCreate);
SAME_CALL(free_events, nvmlEventSetFree);
SAME_CALL(register_events, nvmlDeviceRegisterEvents);
SAME_CALL(wait_event, nvmlEventSetWait_v2);
static_assert(!kSameCall<decltype(NvmlFunctions::clock), decltype(&nvmlDeviceGetEccMode)>);
static_assert(!kSameCall<decltype(NvmlFunctions::memory), decltype(&nvmlDeviceGetPciInfo_v3)>);

TEST(NvmlAbi, StructsAreLaidOutAlike) {
  EXPECT_EQ(sizeof(NvmlMemory), sizeof(nvmlMemory_t));
  EXPECT_EQ(offsetof(NvmlMemory, used), offsetof(nvmlMemory_t, used));
  EXPECT_EQ(sizeof(NvmlPci), sizeof(nvmlPciInfo_t));
  EXPECT_EQ(offsetof(NvmlPci, domain), offsetof(nvmlPciInfo_t, domain));
  EXPECT_EQ(offsetof(NvmlPci, bus_id), offsetof(nvmlPciInfo_t, busId));
  EXPECT_EQ(sizeof(NvmlEvent), sizeof(nvmlEventData_t));
  EXPECT_EQ(offsetof(NvmlEvent, type), offsetof(nvmlEventData_t, eventType));
  EXPECT_EQ(offsetof(NvmlEvent, data), offsetof(nvmlEventData_t, eventData));
}

TEST(NvmlAbi, NumbersMeanTheSame) {
  EXPECT_EQ(NVML_SUCCESS, 0);
  EXPECT_EQ(kClockSm, NVML_CLOCK_SM);
  EXPECT_EQ(kSensorOfGpu, NVML_TEMPERATURE_GPU);
  EXPECT_EQ(kThresholdSlowdown, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
  EXPECT_EQ(kCorrected, NVML_MEMORY_ERROR_TYPE_CORRECTED);
  EXPECT_EQ(kUncorrected, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
  EXPECT_EQ(kSinceDriverLoad, NVML_VOLATILE_ECC);
  EXPECT_GE(kMaxLinks, unsigned{NVML_NVLINK_MAX_LINKS});
  EXPECT_EQ(kXidEvent, nvmlEventTypeXidCriticalError);
  EXPECT_EQ(kTimeout, NVML_ERROR_TIMEOUT);
  EXPECT_EQ(kPowerCap, nvmlClocksThrottleReasonSwPowerCap);
  EXPECT_EQ(kHardwareSlowdown, nvmlClocksThrottleReasonHwSlowdown);
  EXPECT_EQ(kThermalSoftware, nvmlClocksThrottleReasonSwThermalSlowdown);
  EXPECT_EQ(kThermalHardware, nvmlClocksThrottleReasonHwThermalSlowdown);
  EXPECT_EQ(kPowerBrake, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
}

}  // namespace
}  // namespace ringmaster::inventory
