// SPDX-License-Identifier: Apache-2.0

// Hashes of chunks have the bits of xxHash, for whole chunks and for shorter last ones.
#include "worker/compute/cuda/kernels/hash.h"

#include "base/hash.h"
#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/engine/layout.h"

namespace ringmaster::cuda::kernels {
namespace {

TEST(Hash, ChunksHaveTheBitsOfTheCpu) {
  constexpr auto kChunkBlocks = static_cast<int64_t>(kHashChunkBytes / sizeof(float) / engine::kBlock);
  for (const int64_t blocks :
       {int64_t{1}, int64_t{2}, kChunkBlocks - 1, kChunkBlocks, kChunkBlocks + 1, 9 * kChunkBlocks + 5}) {
    SCOPED_TRACE(blocks);
    const std::vector<float> values = RandomFloats(static_cast<uint64_t>(blocks), blocks * engine::kBlock);
    std::vector<uint64_t> want(HashChunkCount(values.size() * sizeof(float)));
    ringmaster::HashChunks(std::as_bytes(std::span(values)), want);
    const auto [got] = InAllOrders([&] {
      const Guarded<float> from(values);
      Guarded<uint64_t> hashes(want.size());
      HashChunks(kStream, blocks, from.get(), hashes.get());
      return std::tuple(hashes.values());
    });
    EXPECT_EQ(got, want);
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
