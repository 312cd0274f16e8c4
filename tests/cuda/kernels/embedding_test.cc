// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/embedding.h"

#include <algorithm>
#include <numeric>

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/cuda/kernels/sort_rows.h"
#include "worker/compute/engine/kernels/embedding.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

std::vector<int32_t> RandomTokens(uint64_t seed, int64_t n, int64_t vocabulary) {
  SplitMix64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  // Some tokens are frequent, as in text.
  for (int32_t& token : tokens) {
    const uint64_t among = random.Chance(0.3) ? std::min<uint64_t>(3, static_cast<uint64_t>(vocabulary))
                                              : static_cast<uint64_t>(vocabulary);
    token = static_cast<int32_t>(random.Below(among));
  }
  return tokens;
}

TEST(SortRows, IsStableForEveryNumberOfRowsAndKeys) {
  for (const int64_t rows : {0, 1, 31, 33, 511, 512, 513, 1100, 2500}) {
    for (const int64_t keys_end : {1, 2, 200, 256, 257, 50257, 70000}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, keys below " << keys_end);
      const std::vector<int32_t> keys = RandomTokens(static_cast<uint64_t>(rows), rows, keys_end);
      const auto [sorted] = InAllOrders([&] {
        const Guarded<int32_t> in(keys);
        Guarded<int32_t> scratch(static_cast<size_t>(SortRowsScratch(rows)));
        const int32_t* const result = SortRows(kStream, rows, keys_end, in.get(), scratch.get());
        const std::vector<int32_t> all = scratch.values();
        const auto from = all.begin() + (result - scratch.get());
        return std::tuple(std::vector<int32_t>(from, from + rows));
      });
      std::vector<int32_t> want(keys.size());
      std::iota(want.begin(), want.end(), 0);
      std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
        return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
      });
      ASSERT_EQ(sorted, want);
    }
  }
}

template <class T>
class Embedding : public testing::Test {};
TYPED_TEST_SUITE(Embedding, ActivationTypes);

TYPED_TEST(Embedding, ForwardEqualsTheReferenceRoundedOnce) {
  using T = TypeParam;
  for (const int64_t width : {1, 24, 37, 256, 776}) {
    for (const int64_t rows : {0, 5, 33}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const int64_t vocabulary = 19, context = 11;
      const std::vector<int32_t> tokens = RandomTokens(3, rows, vocabulary);
      const std::vector<float> table = RandomFloats(1, vocabulary * width);
      const std::vector<float> positions = RandomFloats(2, context * width);
      const auto [out] = InAllOrders([&] {
        const Guarded<int32_t> t(tokens);
        const Guarded<float> w(table), p(positions);
        Guarded<T> to(static_cast<size_t>(rows * width));
        EmbeddingForward(kStream, rows, width, context, t.get(), w.get(), p.get(), to.get());
        return std::tuple(to.values());
      });
      std::vector<float> want(out.size());
      reference::EmbeddingForward(rows, width, 0, context, tokens.data(), table.data(), positions.data(),
                                  want.data());
      ExpectNear(out, Floats(As<T>(want)), 0, 0);
    }
  }
}

TYPED_TEST(Embedding, BackwardHasTheBitsOfTheReference) {
  using T = TypeParam;
  for (const int64_t vocabulary : {1, 29, 5000}) {
    for (const int64_t width : {1, 24, 264, 300}) {
      for (const int64_t rows : {0, 1, 45, 600}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width << " of " << vocabulary);
        if (rows * width > 50000 && vocabulary != 29) continue;
        const std::vector<int32_t> tokens = RandomTokens(7, rows, vocabulary);
        const std::vector<float> d = RandomIn<T>(5, rows * width);
        const std::vector<float> before = RandomFloats(6, vocabulary * width);
        const auto [got] = InAllOrders([&] {
          const Guarded<int32_t> t(tokens);
          const Guarded<T> gradient(As<T>(d));
          Guarded<float> table(before);
          Guarded<int32_t> scratch(static_cast<size_t>(EmbeddingBackwardScratch(rows)));
          EmbeddingBackward(kStream, rows, width, vocabulary, t.get(), gradient.get(), table.get(),
                            scratch.get());
          return std::tuple(table.values());
        });
        std::vector<float> want = before;
        reference::EmbeddingBackward(rows, width, 0, width, tokens.data(), d.data(), want.data());
        ASSERT_TRUE(SameBits(std::tuple(got), std::tuple(want)));
      }
    }
  }
}

TYPED_TEST(Embedding, PositionBackwardHasTheBitsOfTheReference) {
  using T = TypeParam;
  for (const int64_t samples : {0, 1, 3}) {
    const int64_t context = 13, width = 37;
    const std::vector<float> d = RandomIn<T>(5, samples * context * width);
    const auto [got] = InAllOrders([&] {
      const Guarded<T> gradient(As<T>(d));
      Guarded<float> positions(static_cast<size_t>(context * width));
      PositionBackward(kStream, samples, context, width, gradient.get(), positions.get());
      return std::tuple(positions.values());
    });
    std::vector<float> want(got.size());
    reference::PositionBackward(samples, context, width, 0, context, d.data(), want.data());
    ASSERT_TRUE(SameBits(std::tuple(got), std::tuple(want)));
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
