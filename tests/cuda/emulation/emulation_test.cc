// SPDX-License-Identifier: Apache-2.0

// The emulation detects the errors that it exists for: every kernel below has a planted bug.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "tests/cuda/emulation/error.h"
#include "tests/cuda/emulation/memory.h"
#include "worker/compute/cuda/launch.h"

namespace ringmaster::cuda::emulation {
namespace {

constexpr uint32_t kAll = 0xffffffffU;

// Returns the message of the error that `launch` throws, or an empty string.
template <class Fn>
std::string ErrorOf(const Fn& launch) {
  try {
    launch();
  } catch (const KernelError& error) {
    return error.what();
  }
  return "";
}

// out[block] = sum of the 256 elements of the block.
__global__ void BlockSum(const int32_t* in, int32_t* out) {
  RM_SHARED(int32_t, totals, 8);
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  if (thread % 32 == 0) totals[thread / 32] = sum;
  __syncthreads();
  if (thread != 0) return;
  int32_t all = 0;
  for (int w = 0; w < 8; ++w) all += totals[w];
  out[blockIdx.x] = all;
}

TEST(Emulation, SumsABlockInEveryOrder) {
  std::vector<int32_t> numbers(5 * 256);
  std::iota(numbers.begin(), numbers.end(), -300);
  const Guarded<int32_t> in(numbers);
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    const Schedule schedule(order, 7);
    Guarded<int32_t> out(5);
    Launch(BlockSum, 5, 256, 0, nullptr, in.get(), out.get());
    for (int b = 0; b < 5; ++b) {
      EXPECT_EQ(out.get()[b], std::accumulate(numbers.begin() + b * 256, numbers.begin() + (b + 1) * 256, 0));
    }
  }
}

// Only the address sanitizer can see that a stack which is gone still counts as forbidden memory.
TEST(Emulation, MemoryOfFormerStacksMayBeUsed) {
  std::thread([] {
    const Guarded<int32_t> in(std::vector<int32_t>(256));
    Guarded<int32_t> out(1);
    Launch(BlockSum, 1, 256, 0, nullptr, in.get(), out.get());
  }).join();  // its stacks end with it
  constexpr size_t kBytes = 132 * 1024;
  std::vector<void*> blocks(300);
  for (void*& block : blocks) {
    block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(block, MAP_FAILED);
    std::memset(block, 1, kBytes);
  }
  for (void* const block : blocks) ::munmap(block, kBytes);
}

__global__ void WarpWords(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  out[lane] = __match_any_sync(kAll, lane % 3);
  out[32 + lane] = __ballot_sync(kAll, lane % 5 == 0);
  out[64 + lane] = __reduce_max_sync(kAll, lane * 7 % 32);
  out[96 + lane] = __shfl_up_sync(kAll, lane, 3);
  out[128 + lane] = __shfl_down_sync(kAll, lane, 3, 16);
  out[160 + lane] = __shfl_sync(kAll, lane, 5);
  // Lanes outside of the mask need not take part.
  if (lane < 16) out[192 + lane] = __shfl_xor_sync(0xffffU, lane, 1);
}

TEST(Emulation, WarpFunctionsBehaveAsOnAGpu) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    const Schedule schedule(order, 3);
    Guarded<uint32_t> out(208);
    Launch(WarpWords, 1, 32, 0, nullptr, out.get());
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint32_t same = 0;
      for (uint32_t other = lane % 3; other < 32; other += 3) same |= 1U << other;
      EXPECT_EQ(out.get()[lane], same);
      EXPECT_EQ(out.get()[32 + lane], 1U | 1U << 5 | 1U << 10 | 1U << 15 | 1U << 20 | 1U << 25 | 1U << 30);
      EXPECT_EQ(out.get()[64 + lane], 31U);
      EXPECT_EQ(out.get()[96 + lane], lane < 3 ? lane : lane - 3);
      EXPECT_EQ(out.get()[128 + lane], lane % 16 < 13 ? lane + 3 : lane);
      EXPECT_EQ(out.get()[160 + lane], 5U);
      if (lane >= 16) continue;
      EXPECT_EQ(out.get()[192 + lane], lane ^ 1U);
    }
  }
}

__global__ void BarrierForHalf(int32_t* out) {
  if (threadIdx.x < 48) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void TwoBarriers(int32_t* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
__global__ void ShuffleForHalf(int32_t* out) {
  out[threadIdx.x] = 0;
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(kAll, 1, 1);
}
__global__ void ShuffleFromOutside(int32_t* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffU, 1, 20);
}

TEST(Emulation, DivergentBarrierIsAnError) {
  Guarded<int32_t> out(64);
  const auto launch = [&](auto kernel) {
    return ErrorOf([&] { Launch(kernel, 1, 64, 0, nullptr, out.get()); });
  };
  EXPECT_THAT(launch(BarrierForHalf), testing::HasSubstr("divergent barrier"));
  EXPECT_THAT(launch(BarrierForHalf), testing::HasSubstr("has ended"));
  EXPECT_THAT(launch(TwoBarriers), testing::HasSubstr("divergent barrier"));
  EXPECT_THAT(launch(ShuffleForHalf), testing::HasSubstr("divergent warp"));
  EXPECT_THAT(launch(ShuffleFromOutside), testing::HasSubstr("outside its mask"));
  // Later launches work again.
  Guarded<int32_t> in(std::vector<int32_t>(256, 2));
  Launch(BlockSum, 1, 256, 0, nullptr, in.get(), out.get());
  EXPECT_EQ(out.get()[0], 512);
}

// Each thread passes a number to the thread one warp further, which is correct only with kBarrier.
template <bool kBarrier>
__global__ void PassOn(int32_t* out) {
  RM_SHARED(int32_t, numbers, 128);
  numbers[threadIdx.x] = static_cast<int32_t>(threadIdx.x);
  if constexpr (kBarrier) __syncthreads();
  out[threadIdx.x] = numbers[(threadIdx.x + 32) % 128];
}
// The same through reused shared memory: without the second barrier, fast threads overwrite values that slow
// threads have not read yet.
template <bool kBarrier>
__global__ void PassOnTwice(int32_t* out) {
  RM_SHARED(int32_t, numbers, 128);
  numbers[threadIdx.x] = static_cast<int32_t>(threadIdx.x);
  __syncthreads();
  const int32_t first = numbers[(threadIdx.x + 32) % 128];
  if constexpr (kBarrier) __syncthreads();
  numbers[threadIdx.x] = first;
  __syncthreads();
  out[threadIdx.x] = numbers[(threadIdx.x + 32) % 128];
}
// The same within a warp.
template <bool kBarrier>
__global__ void PassOnInWarp(int32_t* out) {
  RM_SHARED(int32_t, numbers, 128);
  numbers[threadIdx.x] = static_cast<int32_t>(threadIdx.x);
  if constexpr (kBarrier) __syncwarp();
  out[threadIdx.x] = numbers[threadIdx.x ^ 1U];
}

// Returns whether the result is the same in all orders.
bool SameInAllOrders(void (*kernel)(int32_t*)) {
  std::vector<int32_t> first;
  bool same = true;
  const auto run = [&](Order order, uint64_t seed) {
    const Schedule schedule(order, seed);
    Guarded<int32_t> out(128);
    Launch(kernel, 1, 128, 0, nullptr, out.get());
    if (first.empty()) first = out.values();
    same = same && out.values() == first;
  };
  run(Order::kForward, 0);
  run(Order::kReverse, 0);
  for (uint64_t seed = 0; seed < 4; ++seed) run(Order::kRandom, seed);
  return same;
}

TEST(Emulation, MissingBarrierShowsInSomeOrder) {
  EXPECT_TRUE(SameInAllOrders(PassOn<true>));
  EXPECT_FALSE(SameInAllOrders(PassOn<false>));
  EXPECT_TRUE(SameInAllOrders(PassOnTwice<true>));
  EXPECT_FALSE(SameInAllOrders(PassOnTwice<false>));
  EXPECT_TRUE(SameInAllOrders(PassOnInWarp<true>));
  EXPECT_FALSE(SameInAllOrders(PassOnInWarp<false>));
}

__global__ void ReadsBeforeWriting(float* out) {
  RM_SHARED(float, fixed, 32);
  RM_DYNAMIC_SHARED(float, dynamic);
  out[threadIdx.x] = fixed[threadIdx.x];
  out[32 + threadIdx.x] = dynamic[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;  // the next block must not see it
}

TEST(Emulation, SharedMemoryIsNaNAtTheStartOfEveryBlock) {
  Guarded<float> out(64);
  Launch(ReadsBeforeWriting, 3, 32, 32 * sizeof(float), nullptr, out.get());
  for (const float value : out.values()) EXPECT_TRUE(std::isnan(value));
}

__global__ void WriteAt(int32_t* out, int64_t at) { out[at] = 5; }
__global__ void ReadAt(const float* in, int64_t at, float* out) { *out = in[at]; }
template <int kSize>
__global__ void WriteShared(int at) {
  RM_SHARED(int32_t, fixed, kSize);
  fixed[at] = 5;
}
__global__ void WriteDynamic(int at) {
  RM_DYNAMIC_SHARED(int32_t, dynamic);
  dynamic[at] = 5;
}

#if defined(RINGMASTER_ADDRESS_SANITIZER)
TEST(EmulationDeathTest, SanitizerReportsAccessOutsideDeviceMemory) {
  Guarded<int32_t> out(33);
  Guarded<float> in(std::vector<float>(33, 1.0f));
  Guarded<float> result(1);
  EXPECT_DEATH(Launch(WriteAt, 1, 1, 0, nullptr, out.get(), 33), "use-after-poison");
  EXPECT_DEATH(Launch(ReadAt, 1, 1, 0, nullptr, in.get(), 33, result.get()), "use-after-poison");
  EXPECT_DEATH(Launch(ReadAt, 1, 1, 0, nullptr, in.get(), -1, result.get()), "use-after-poison");
}
#else
TEST(Emulation, WriteOutsideDeviceMemoryIsDetectedAfterTheLaunch) {
  for (const int64_t at : {int64_t{-1}, int64_t{33}, int64_t{40}}) {
    Guarded<int32_t> out(33);
    EXPECT_THAT(ErrorOf([&] { Launch(WriteAt, 1, 1, 0, nullptr, out.get(), at); }),
                testing::HasSubstr(at < 0 ? "wrote before" : "wrote after"));
  }
  Guarded<int32_t> out(33);
  EXPECT_EQ(ErrorOf([&] { Launch(WriteAt, 1, 1, 0, nullptr, out.get(), 32); }), "");
}

TEST(Emulation, ReadOutsideDeviceMemoryGivesNaN) {
  Guarded<float> in(std::vector<float>(33, 1.0f));
  Guarded<float> out(1);
  for (const int64_t at : {int64_t{-1}, int64_t{33}, int64_t{60}}) {
    Launch(ReadAt, 1, 1, 0, nullptr, in.get(), at, out.get());
    EXPECT_TRUE(std::isnan(*out.get())) << at;
  }
}
#endif

TEST(Emulation, WriteAfterSharedMemoryIsAnError) {
  EXPECT_EQ(ErrorOf([] { Launch(WriteShared<8>, 1, 1, 0, nullptr, 7); }), "");
  EXPECT_THAT(ErrorOf([] { Launch(WriteShared<8>, 1, 1, 0, nullptr, 8); }),
              testing::HasSubstr("after the end of a shared array of 32 bytes"));
  EXPECT_EQ(ErrorOf([] { Launch(WriteDynamic, 1, 1, 40, nullptr, 9); }), "");
  EXPECT_THAT(ErrorOf([] { Launch(WriteDynamic, 1, 1, 40, nullptr, 10); }),
              testing::HasSubstr("after the end of its 40 bytes of shared memory"));
}

TEST(Emulation, LaunchBeyondTheLimitsOfAGpuIsAnError) {
  Guarded<int32_t> out(1);
  const auto launch = [&](dim3 grid, dim3 block, size_t shared) {
    return ErrorOf([&] { Launch(WriteAt, grid, block, shared, nullptr, out.get(), 0); });
  };
  EXPECT_EQ(launch(1, 1024, 227 * 1024), "");
  EXPECT_THAT(launch(1, 1025, 0), testing::HasSubstr("1025 threads"));
  EXPECT_THAT(launch(dim3(1, 65536), 1, 0), testing::HasSubstr("grid"));
  EXPECT_THAT(launch(1, 1, 228 * 1024), testing::HasSubstr("shared memory"));
  EXPECT_THAT(ErrorOf([] { Launch(WriteShared<12 * 1024 + 1>, 1, 1, 0, nullptr, 0); }),
              testing::HasSubstr("static shared arrays"));
  // Launch raises the limit of 48 KiB only when the dynamic part alone exceeds it.
  EXPECT_EQ(ErrorOf([] { Launch(WriteShared<1024>, 1, 1, 44 * 1024, nullptr, 0); }), "");
  EXPECT_THAT(ErrorOf([] { Launch(WriteShared<1024>, 1, 1, 45 * 1024, nullptr, 0); }),
              testing::HasSubstr("50176 bytes of shared memory"));
  EXPECT_EQ(ErrorOf([] { Launch(WriteShared<1024>, 1, 1, 49 * 1024, nullptr, 0); }), "");
  EXPECT_THAT(ErrorOf([] { Launch(WriteShared<1024>, 1, 1, 226 * 1024, nullptr, 0); }),
              testing::HasSubstr("bytes of shared memory"));
  EXPECT_EQ(launch(dim3(0), 1, 0), "");  // an empty grid is a no-op
}

}  // namespace
}  // namespace ringmaster::cuda::emulation
