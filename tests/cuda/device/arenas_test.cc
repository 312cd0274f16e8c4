// SPDX-License-Identifier: Apache-2.0

// Memory for collectives comes from NCCL where NCCL provides it, else from CUDA; both are zeroed and freed.
#include "worker/compute/cuda/arenas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/cuda_device.h"

namespace ringmaster::cuda {
namespace {

namespace nccl = fabric::nccl;

// Calls to NCCL. Global, because its functions take no context; one test runs at a time.
struct Asked {
  int gives = 1000;  // number of successful allocations
  std::vector<void*> given = {};
  int freed = 0;
} asked;

nccl::Api WithMemory(int gives) {
  asked = {.gives = gives};
  nccl::Api api;
  api.version = 22902;
  api.error_string = [](int) { return "some error"; };
  api.allocate = [](void** memory, size_t bytes) {
    if (asked.gives-- <= 0) return static_cast<int>(nccl::kUnhandledCudaError);
    *memory = emulation::AllocateDevice(static_cast<int64_t>(bytes));
    std::memset(*memory, 0x5a, bytes);
    asked.given.push_back(*memory);
    return static_cast<int>(nccl::kSuccess);
  };
  api.free = [](void* memory) {
    EXPECT_EQ(std::ranges::count(asked.given, memory), 1);
    ++asked.freed;
    emulation::Free(memory);
    return static_cast<int>(nccl::kSuccess);
  };
  return api;
}

class ArenasTest : public testing::Test {
 protected:
  ~ArenasTest() override {
    arenas_.reset();
    EXPECT_EQ(emulation::UseOfDevice().used_bytes, before_);
  }
  void Make(const nccl::Api& api) { arenas_ = std::make_unique<Arenas>(api, stream_.get()); }
  Arenas::Arena Allocate(int64_t bytes) {
    const Arenas::Arena arena = arenas_->Allocate(bytes).value();
    EXPECT_EQ(arena.memory.size(), static_cast<size_t>(bytes));
    EXPECT_TRUE(std::ranges::all_of(arena.memory, [](std::byte each) { return each == std::byte{0}; }));
    EXPECT_EQ(std::ranges::count(asked.given, arena.memory.data()), arena.from_nccl ? 1 : 0);
    return arena;
  }

  const int64_t before_ = emulation::UseOfDevice().used_bytes;
  OwnedStream stream_ = OwnedStream::Create().value();
  std::unique_ptr<Arenas> arenas_;
};

TEST_F(ArenasTest, NcclProvidesTheMemory) {
  Make(WithMemory(1000));
  EXPECT_TRUE(Allocate(1000).from_nccl);
  EXPECT_EQ(Allocate(1).taken_bytes, 2 << 20) << "whole pages";
  EXPECT_EQ(Allocate((2 << 20) + 1).taken_bytes, 4 << 20);
  EXPECT_EQ(asked.freed, 0);
  arenas_.reset();
  EXPECT_EQ(asked.freed, 3);
}

TEST_F(ArenasTest, AfterAFailureCudaProvidesIt) {
  Make(WithMemory(1));
  EXPECT_TRUE(Allocate(1000).from_nccl);
  const Arenas::Arena second = Allocate(1000);
  EXPECT_FALSE(second.from_nccl);
  EXPECT_EQ(second.taken_bytes, 1000);
  asked.gives = 1000;
  EXPECT_FALSE(Allocate(1000).from_nccl) << "memory of both kinds would be useless";
  arenas_.reset();
  EXPECT_EQ(asked.freed, 1);
}

TEST_F(ArenasTest, WithoutNcclOrOneThatIsTooOld) {
  Make(nccl::Api{});
  EXPECT_FALSE(Allocate(1000).from_nccl);
  nccl::Api old = WithMemory(1000);
  old.allocate = nullptr;
  Make(old);
  EXPECT_FALSE(Allocate(1000).from_nccl);
  EXPECT_TRUE(arenas_->Allocate(0)->memory.empty());
}

// The error names the needed memory, the earlier allocations, and the free memory.
TEST(DeviceMemory, TooLittleMemoryFailsWithTheArithmetic) {
  emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + (10 << 20));
  const auto device = CreateDevice().value();
  ASSERT_TRUE(device->Allocate(4 << 20, "params").ok());
  const auto refused = device->Allocate(7 << 20, "sums");
  emulation::SetDeviceMemory(int64_t{16} << 30);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("params 4.0 + sums 7.0 MiB are needed"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace ringmaster::cuda
