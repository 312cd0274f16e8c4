// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/runtime/error.h"

#include <gtest/gtest.h>

#include "tests/cuda/runtime/faults.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {
namespace {

TEST(DeviceError, StatesTheMeaningAndTheRemedy) {
  const Error driver = DeviceError(35, "looking for GPUs");
  EXPECT_EQ(driver.code, Code::kUnavailable);
  EXPECT_EQ(
      driver.message,
      "looking for GPUs: there is no NVIDIA driver, or it is too old for CUDA 13: install driver 580 or "
      "newer, and in a container request nvidia.com/gpu so that it is mounted "
      "(cudaErrorInsufficientDriver)");
  EXPECT_EQ(DeviceError(2, "taking memory").code, Code::kExhausted);
  EXPECT_EQ(DeviceError(209, "choosing GPU 0").code, Code::kInvalid);
  const Error unknown = DeviceError(12345, "measuring");
  EXPECT_EQ(unknown.code, Code::kInternal);
  EXPECT_EQ(unknown.message, "measuring: CUDA error 12345");
}

TEST(DeviceError, ProcessMustExitWhenTheDeviceIsLost) {
  for (const int lost : {214, 220, 700, 710, 716, 719, 999})
    EXPECT_TRUE(MustExit(DeviceError(lost, "waiting"))) << lost;
  for (const int well : {1, 2, 9, 35, 100, 209, 701, 12345})
    EXPECT_FALSE(MustExit(DeviceError(well, "waiting"))) << well;
}

// Otherwise a trainer would treat it as the failure of a peer, and wait for orders.
TEST(DeviceError, UnavailableDeviceInUseIsLost) {
  for (const int lost : {3, 35, 46, 100, 700, 802, 805, 807})
    EXPECT_TRUE(MustExit(WorkError(lost, "waiting"))) << lost;
  for (const int well : {1, 2, 9, 209, 12345}) {
    EXPECT_EQ(WorkError(well, "waiting").code, DeviceError(well, "waiting").code) << well;
  }
  EXPECT_EQ(DeviceError(806, "choosing GPU 0").code, Code::kUnavailable)
      << "MPS, with which workers share a GPU";
}

TEST(Emulation, ErrorThatLosesTheDevicePersists) {
  auto stream = OwnedStream::Create();
  ASSERT_TRUE(stream.ok());
  emulation::FailAtWait(2, 700);
  EXPECT_TRUE(Synchronize(stream->get()).ok());
  const Status failed = Synchronize(stream->get());
  ASSERT_FALSE(failed.ok());
  EXPECT_TRUE(MustExit(failed.error())) << failed.error().message;
  EXPECT_FALSE(Synchronize(stream->get()).ok());
  EXPECT_FALSE(Buffer<float>::Create(4).ok());
  emulation::FailAtWait(0, 0);
  EXPECT_TRUE(Synchronize(stream->get()).ok());
}

TEST(Emulation, OtherErrorsAreReportedOnce) {
  auto stream = OwnedStream::Create();
  ASSERT_TRUE(stream.ok());
  emulation::FailAtWait(1, 9);
  const Status failed = Synchronize(stream->get());
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kInternal);
  EXPECT_TRUE(Synchronize(stream->get()).ok());
}

TEST(Emulation, DistinguishesNoDriverFromNoDevice) {
  emulation::SetDevices(-1);
  const auto none = ListDevices();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  emulation::SetDevices(0);
  const auto empty = ListDevices();
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->empty());
  EXPECT_FALSE(BindDevice(0).ok());
  emulation::SetDevices(1);
  EXPECT_TRUE(BindDevice(0).ok());
  EXPECT_FALSE(BindDevice(1).ok());
}

}  // namespace
}  // namespace ringmaster::cuda
