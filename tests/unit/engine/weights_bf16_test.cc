// The bfloat16 images of weights: each element is its master, rounded, in the place that packed.h says, and
// they are made anew when, and only when, the parameters change.
#include "worker/engine/weights_bf16.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine {
namespace {

uint16_t Rounded(float value) {
  uint16_t out;
  kernels::ReferenceKernels().ToBf16(1, 1, &value, 0, &out, 0);
  return out;
}

// Element (k, n) of a packed image.
uint16_t Element(const uint16_t* image, const PackedShape& shape, int64_t k, int64_t n) {
  const int64_t slice = k / PackedShape::SliceDepth(shape.depth) * PackedShape::SliceDepth(shape.depth);
  const int64_t in_slice = k - slice;
  return image[shape.At(slice, n) + (in_slice / 2 * kernels::kStripColumns + n % kernels::kStripColumns) * 2 +
               in_slice % 2];
}

struct Fixture {
  static constexpr int64_t kRows = 2100, kColumns = 77, kOffset = 1024;  // rows in three slices
  explicit Fixture(int threads) : pool(threads), params(RandomFloats(1, kOffset + kRows * kColumns)) {
    weights.Add(kOffset, kRows, kColumns, true, true);
  }
  kernels::Matrix Of(bool transposed) const { return {params.data() + kOffset, kColumns, transposed}; }
  const uint16_t* Image(bool transposed) {
    return transposed ? weights.Find(Of(true), kColumns, kRows, pool)
                      : weights.Find(Of(false), kRows, kColumns, pool);
  }
  // How many elements of an image are not the rounded masters.
  int64_t Wrong(bool transposed) {
    const uint16_t* image = Image(transposed);
    const PackedShape shape = transposed ? PackedShape{kColumns, kRows} : PackedShape{kRows, kColumns};
    int64_t wrong = 0;
    for (int64_t k = 0; k < shape.depth; ++k)
      for (int64_t n = 0; n < shape.columns; ++n) {
        const int64_t at = transposed ? n * kColumns + k : k * kColumns + n;
        wrong += Element(image, shape, k, n) != Rounded(params[static_cast<size_t>(kOffset + at)]) ? 1 : 0;
      }
    return wrong;
  }
  ThreadPool pool;
  std::vector<float> params;
  WeightsBf16 weights{kernels::FastKernels()};
};

TEST(WeightsBf16, ImagesAreTheRoundedMasters) {
  for (const int threads : {1, 3}) {
    Fixture f(threads);
    f.weights.Begin(f.params.data(), 1, true);
    EXPECT_EQ(f.Wrong(false), 0);
    EXPECT_EQ(f.Wrong(true), 0);
    EXPECT_GT(f.weights.Bytes(), 4 * f.kRows * f.kColumns);
  }
}

TEST(WeightsBf16, MadeAgainWhenTheVersionChangesAndOnlyThen) {
  Fixture f(1);
  f.weights.Begin(f.params.data(), 1, true);
  ASSERT_EQ(f.Wrong(true), 0);
  for (float& value : f.params) value += 1.0f;
  f.weights.Begin(f.params.data(), 1, true);  // says that nothing changed, and is believed
  EXPECT_GT(f.Wrong(false), 0);
  EXPECT_GT(f.Wrong(true), 0);
  f.weights.Begin(f.params.data(), 2, true);
  EXPECT_EQ(f.Wrong(false), 0);
  EXPECT_EQ(f.Wrong(true), 0);
  for (float& value : f.params) value += 1.0f;
  f.weights.Begin(f.params.data(), 0, false);  // says nothing
  EXPECT_EQ(f.Wrong(false), 0);
  // The image that no product of a forward pass asked for is made when one does.
  f.weights.Begin(f.params.data(), 0, false);
  EXPECT_EQ(f.Wrong(true), 0);
}

TEST(WeightsBf16, FollowsTheParametersToAnotherAddress) {
  Fixture f(1);
  f.weights.Begin(f.params.data(), 1, true);
  ASSERT_EQ(f.Wrong(false), 0);
  const std::vector<float> old = std::move(f.params);
  f.params = RandomFloats(2, static_cast<int64_t>(old.size()));
  f.weights.Begin(f.params.data(), 2, true);
  EXPECT_EQ(f.Wrong(false), 0);
  EXPECT_EQ(f.Wrong(true), 0);
}

TEST(WeightsBf16, OnlyWeightsAreFound) {
  Fixture f(1);
  EXPECT_EQ(f.Image(false), nullptr) << "before the first Begin";
  f.weights.Begin(f.params.data(), 1, true);
  EXPECT_NE(f.Image(false), nullptr);
  const std::vector<float> other(8);
  EXPECT_EQ(f.weights.Find({other.data(), 4, false}, 2, 4, f.pool), nullptr);
}

}  // namespace
}  // namespace ringmaster::engine
