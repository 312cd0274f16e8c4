// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/runtime/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/runtime/device_properties.h"

namespace ringmaster::cuda {
namespace {

using testing::HasSubstr;

class SmallDevice : public testing::Test {
 protected:
  void SetUp() override { emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + (10 << 20)); }
  void TearDown() override { emulation::SetDeviceMemory(int64_t{16} << 30); }
};

TEST_F(SmallDevice, MemoryIsZeroedCountedAndFreed) {
  const int64_t before = emulation::UseOfDevice().used_bytes;
  {
    auto buffer = Buffer<int32_t>::Create(1000);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->get()) % 256, 0u);
    for (const int32_t value : buffer->span()) ASSERT_EQ(value, 0);
    EXPECT_EQ(emulation::UseOfDevice().used_bytes, before + 4000);
    Buffer<int32_t> moved = std::move(*buffer);
    EXPECT_EQ(moved.size(), 1000);
  }
  EXPECT_EQ(emulation::UseOfDevice().used_bytes, before);
}

TEST_F(SmallDevice, PlanThatDoesNotFitFailsWithTheWholeSum) {
  Buffer<float> a, b, c;
  MemoryPlan plan("raise microBatches");
  plan.Reserve(a, 1 << 20, "activations");
  plan.Reserve(b, 1 << 20, "activations");
  plan.Reserve(c, 1 << 20, "logits");
  EXPECT_EQ(plan.bytes(), 12 << 20);
  const Status refused = plan.Allocate();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_EQ(a.size(), 0);
  EXPECT_THAT(refused.error().message,
              HasSubstr("12.0 MiB are needed (activations 8.0 MiB + logits 4.0 MiB), 10.0 MiB of"));
  EXPECT_THAT(refused.error().message, HasSubstr("are free; raise microBatches"));
}

TEST_F(SmallDevice, PlanThatFitsIsAllocated) {
  Buffer<float> a;
  Buffer<uint8_t> b;
  MemoryPlan plan("raise microBatches");
  plan.Reserve(a, 1 << 20, "activations");
  plan.Reserve(b, 77, "hits");
  ASSERT_TRUE(plan.Allocate().ok());
  EXPECT_EQ(a.size(), 1 << 20);
  EXPECT_EQ(b.size(), 77);
}

}  // namespace
}  // namespace ringmaster::cuda
