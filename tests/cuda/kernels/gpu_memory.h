// SPDX-License-Identifier: Apache-2.0

// Memory and repetitions of kernel tests that run on a real GPU. Without a GPU all tests are skipped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/runtime/with_device.h"

namespace ringmaster::cuda::kernels {

class NeedsGpu : public testing::Environment {
 public:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty())
      GTEST_SKIP() << "no GPU for these tests: " << why;
  }
};
inline testing::Environment* const kNeedsGpu =
    testing::AddGlobalTestEnvironment(std::make_unique<NeedsGpu>().release());

// Device memory between guard zones, filled with NaNs.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t size)
      : size_(size),
        memory_(Buffer<std::byte>::Create(static_cast<int64_t>(2 * kGuard + size * sizeof(T))).value()) {
    Fill(std::vector<std::byte>(static_cast<size_t>(memory_.size()), kPattern));
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    std::vector<std::byte> bytes(static_cast<size_t>(memory_.size()), kPattern);
    std::ranges::copy(std::as_bytes(std::span(values)), bytes.begin() + kGuard);
    Fill(bytes);
  }
  T* get() const { return reinterpret_cast<T*>(memory_.get() + kGuard); }
  size_t size() const { return size_; }
  // Blocks until the device is idle.
  std::vector<T> values() const {
    const std::vector<std::byte> bytes = Downloaded(nullptr, memory_);
    const auto intact = [](std::byte byte) { return byte == kPattern; };
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + kGuard, intact)) << "written before the memory";
    EXPECT_TRUE(std::all_of(bytes.end() - kGuard, bytes.end(), intact)) << "written after the memory";
    std::vector<T> values(size_);
    std::copy(bytes.begin() + kGuard, bytes.end() - kGuard,
              std::as_writable_bytes(std::span(values)).begin());
    return values;
  }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr std::byte kPattern{0xff};

  void Fill(const std::vector<std::byte>& bytes) {
    const auto host = Pinned<std::byte>::Create(static_cast<int64_t>(bytes.size())).value();
    std::ranges::copy(bytes, host.get());
    CopyToDevice(nullptr, memory_.get(), host.get(), host.bytes());
    EXPECT_TRUE(Synchronize(nullptr).ok());
  }

  size_t size_;
  Buffer<std::byte> memory_;
};

// The GPU chooses the order of threads, which may differ between runs.
template <class Run, class Check>
auto InSeveralOrders(const Run& run, const Check& check) {
  auto first = run();
  check(first, run(), "again");
  return first;
}

}  // namespace ringmaster::cuda::kernels
