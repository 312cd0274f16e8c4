// SPDX-License-Identifier: Apache-2.0

// Fixture of tests that run on an emulated and on a real device; without a device they are skipped with the
// reason.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// Binds the thread to the device and returns an empty string, or returns why there is no device.
inline std::string WhyNoDevice() {
  const auto devices = ListDevices();
  if (!devices.ok()) return devices.error().message;
  if (devices->empty()) return "no GPU is visible";
  const auto bound = BindDevice(0);
  return bound.ok() ? "" : bound.error().message;
}

template <class Base>
class WithDevice : public Base {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

template <class T>
Buffer<T> Uploaded(Stream stream, const std::vector<T>& values) {
  const auto size = static_cast<int64_t>(values.size());
  Buffer<T> buffer = Buffer<T>::Create(size).value();
  const Pinned<T> host = Pinned<T>::Create(size).value();
  std::copy(values.begin(), values.end(), host.get());
  CopyToDevice(stream, buffer.get(), host.get(), host.bytes());
  EXPECT_TRUE(Synchronize(stream).ok());
  return buffer;
}

template <class T>
std::vector<T> Downloaded(Stream stream, const Buffer<T>& buffer) {
  const Pinned<T> host = Pinned<T>::Create(buffer.size()).value();
  CopyToHost(stream, host.get(), buffer.get(), buffer.bytes());
  const Status done = Synchronize(stream);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return {host.get(), host.get() + host.size()};
}

}  // namespace ringmaster::cuda
