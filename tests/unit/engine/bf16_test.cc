// SPDX-License-Identifier: Apache-2.0

// bf16 against fp32: the same step with operands rounded to 8 bits of mantissa gives nearly the same numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine {
namespace {

void ExpectCloseToFp32(ModelConfig config, uint64_t seed) {
  const auto exact = Make(config);
  config.precision = Precision::kBf16;
  const auto rounded = Make(config);
  const OwnedBatch data = RandomBatch(config, config.max_samples, seed);
  std::vector<float> params(static_cast<size_t>(exact->layout().elements));
  exact->Initialise(seed, params);
  std::vector<float> want(params.size()), got(params.size());
  const auto want_sums = exact->ForwardBackward(params, data.batch, want, nullptr, nullptr);
  const auto got_sums = rounded->ForwardBackward(params, data.batch, got, nullptr, nullptr);
  ASSERT_TRUE(want_sums.ok() && got_sums.ok());
  EXPECT_NEAR(got_sums->loss, want_sums->loss, 5e-3 * want_sums->loss);
  EXPECT_NE(want, got) << "bf16 was not used";
  for (const Parameter& parameter : exact->layout().parameters) {
    double error = 0, norm = 0;
    for (int64_t i = parameter.offset; i < parameter.offset + parameter.size; ++i) {
      const double off = static_cast<double>(got[static_cast<size_t>(i)]) - want[static_cast<size_t>(i)];
      error += off * off;
      norm += static_cast<double>(want[static_cast<size_t>(i)]) * want[static_cast<size_t>(i)];
    }
    EXPECT_LT(std::sqrt(error), 0.03 * std::sqrt(norm)) << parameter.name;
  }
}

TEST(Bf16, CloseToFp32) {
  ExpectCloseToFp32(SmallGpt(), 1);
  ExpectCloseToFp32(SmallMlp(), 2);
  ExpectCloseToFp32(SmallCnn(), 3);
}

// A model that has seen other parameters, and some of these in a forward pass only, gives the bits of a new
// one.
TEST(Bf16, NothingStaysOfEarlierParameters) {
  for (ModelConfig config : {SmallGpt(), SmallMlp(), SmallCnn()}) {
    config.precision = Precision::kBf16;
    const auto used = Make(config);
    const auto fresh = Make(config);
    const OwnedBatch data = RandomBatch(config, config.max_samples, 4);
    std::vector<float> params = LivelyParams(*used, 5);
    std::vector<float> want(params.size()), got(params.size());
    ASSERT_TRUE(used->ForwardBackward({params, 1}, data.batch, got, nullptr, nullptr).ok());
    for (float& value : params) value *= -0.5f;
    const Sums evaluated = used->Evaluate({params, 2}, data.batch).value();
    const auto again = used->ForwardBackward({params, 2}, data.batch, got, nullptr, nullptr);
    const auto once = fresh->ForwardBackward(params, data.batch, want, nullptr, nullptr);
    ASSERT_TRUE(again.ok() && once.ok());
    EXPECT_EQ(*again, *once);
    EXPECT_EQ(evaluated.loss, once->loss);
    EXPECT_EQ(got, want);
  }
}

}  // namespace
}  // namespace ringmaster::engine
