// SPDX-License-Identifier: Apache-2.0

// Reductions over the members of a group have the bits of the host's.
#include "worker/compute/cuda/kernels/combine_operands.h"

#include <span>

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/fabric/combine.h"

namespace ringmaster::cuda::kernels {
namespace {

template <class T>
std::vector<T> Values(uint64_t seed, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  SplitMix64 random(seed);
  for (T& value : values) {
    // Sums of these values wrap, or depend on the order.
    if constexpr (std::is_same_v<T, int32_t>)
      value = static_cast<int32_t>(random.Next());
    else
      value = static_cast<float>(2 * random.Uniform() - 1) * (random.Chance(0.3) ? 1e7f : 1.0f);
  }
  return values;
}

template <class T>
void Compare(int64_t count, int world, int rank, bool maximum) {
  SCOPED_TRACE(testing::Message() << count << " elements, rank " << rank << " of " << world
                                  << (maximum ? ", maximum" : ""));
  const std::vector<T> own = Values<T>(1, count);
  const std::vector<T> others = Values<T>(2, count * (world - 1));
  const auto [sums] = InAllOrders([&] {
    Guarded<T> data(own);
    const Guarded<T> terms(others);
    CombineOperands<T>(kStream, count, world, rank, maximum, terms.get(), data.get());
    return std::tuple(data.values());
  });
  std::vector<const std::byte*> sources;
  for (int q = 0; q < world - 1; ++q)
    sources.push_back(std::as_bytes(std::span(others)).data() + static_cast<size_t>(q * count) * sizeof(T));
  std::vector<T> expected = own;
  auto* const bytes = std::as_writable_bytes(std::span(expected)).data();
  sources.insert(sources.begin() + rank, bytes);
  const fabric::Combiner combiner{
      std::is_same_v<T, float> ? fabric::Element::kFloat : fabric::Element::kInt32,
      maximum ? fabric::ReduceOp::kMax : fabric::ReduceOp::kSum};
  combiner.Combine(bytes, sources, static_cast<size_t>(count));
  ASSERT_EQ(sums, expected);
}

TEST(CombineOperands, HasTheBitsOfTheHost) {
  for (const int64_t count : {1, 31, 257, 1009}) {
    for (const int world : {2, 3, 7}) {
      for (const bool maximum : {false, true}) {
        for (const int rank : {0, 1, world - 1}) {
          Compare<int32_t>(count, world, rank, maximum);
          Compare<float>(count, world, rank, maximum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
