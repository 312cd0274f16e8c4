// SPDX-License-Identifier: Apache-2.0

// Copies of bulk data, and that the collectives of one host copy with nothing else. The linker sends calls of
// memcpy to __wrap_memcpy below.
#include "worker/fabric/copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/processes.h"

namespace {

std::atomic<size_t> longest_memcpy{0};

}  // namespace

extern "C" {
void* __real_memcpy(void* dst, const void* src, size_t bytes);   // NOLINT: the linker's name
void* __wrap_memcpy(void* dst, const void* src, size_t bytes) {  // NOLINT: the linker's name
  size_t longest = longest_memcpy.load();
  while (longest < bytes && !longest_memcpy.compare_exchange_weak(longest, bytes)) {
  }
  return __real_memcpy(dst, src, bytes);
}
}

namespace ringmaster::fabric {
namespace {

TEST(CopyBytes, CopiesEveryByteAndNoOther) {
  constexpr size_t kMargin = 128;
  std::vector<std::byte> from(6000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  std::vector<size_t> sizes = {1023, 1024, 1025, 2048, 4095, 5003};
  for (size_t bytes = 0; bytes < 400; ++bytes) sizes.push_back(bytes);
  for (const size_t bytes : sizes) {
    for (size_t offset = 0; offset < 65; offset += bytes < 200 ? 8 : 1) {
      std::vector<std::byte> to(bytes + 2 * kMargin, std::byte{0xee});
      CopyBytes(to.data() + kMargin + offset, from.data() + 64 - offset, bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= kMargin + offset && i < kMargin + offset + bytes;
        const std::byte want = inside ? from[64 - offset + i - kMargin - offset] : std::byte{0xee};
        ASSERT_EQ(to[i], want) << "byte " << i << " of " << bytes << " at " << offset;
      }
    }
  }
}

// UBSan reports a null pointer that reaches memcpy.
TEST(CopyBytes, AnEmptySpanNeedsNoMemory) { CopyBytes(nullptr, nullptr, 0); }

// The speed of memcpy at these sizes depends on the CPU and on the addresses.
TEST(CopyBytes, AllReduceOfAnySizeCallsMemcpyForNoBulk) {
  FabricOptions options;
  options.transport = "shm";
  options.timeout = seconds(30);
  constexpr size_t kLargest = (4 << 20) + 12;
  testing::RunAll(2, options, kLargest, [](testing::Member& member) -> Status {
    RM_ASSIGN(auto communicator, member.ConnectAll(1));
    std::vector<float> own(kLargest / sizeof(float));
    const auto shared = reinterpret_cast<float*>(member.memory().data());
    for (const size_t bytes : {size_t{4096}, size_t{16} << 10, size_t{64} << 10, size_t{1} << 20, kLargest}) {
      for (float* const data : {own.data(), shared}) {
        longest_memcpy = 0;
        RM_TRY(communicator->AllReduce(std::span(data, bytes / sizeof(float)), ReduceOp::kSum));
        if (longest_memcpy > 256)
          return Error{Code::kInternal, fmt::format("an all-reduce of {} bytes calls memcpy for {}", bytes,
                                                    longest_memcpy.load())};
      }
    }
    return Ok();
  });
}

}  // namespace
}  // namespace ringmaster::fabric
