// SPDX-License-Identifier: Apache-2.0

// Every parameter tensor's gradient against central differences of the loss, along the gradient itself and
// along random directions of signs.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine {
namespace {

void CheckGradients(const ModelConfig& config, uint64_t seed) {
  const auto model = Make(config);
  const OwnedBatch data = RandomBatch(config, config.max_samples, seed);
  std::vector<float> params = LivelyParams(*model, seed + 100);
  std::vector<float> grads(params.size(), 1e9f);
  const auto sums = model->ForwardBackward(params, data.batch, grads, nullptr, nullptr);
  ASSERT_TRUE(sums.ok());
  const Sums evaluated = model->Evaluate(params, data.batch).value();
  EXPECT_NEAR(sums->loss, evaluated.loss, 1e-6 * evaluated.loss);
  EXPECT_EQ(sums->correct, evaluated.correct);
  EXPECT_EQ(sums->predictions, evaluated.predictions);

  for (const Parameter& parameter : model->layout().parameters) {
    const auto offset = static_cast<size_t>(parameter.offset);
    const auto size = static_cast<size_t>(parameter.size);
    double norm = 0;
    for (size_t i = 0; i < size; ++i) norm += static_cast<double>(grads[offset + i]) * grads[offset + i];
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 1e-4) << parameter.name << ": the test would prove nothing";
    for (int direction = 0; direction < 3; ++direction) {
      std::vector<float> d(size);
      SplitMix64 random(seed + static_cast<uint64_t>(direction));
      for (size_t i = 0; i < size; ++i)
        d[i] = direction == 0
                   ? static_cast<float>(grads[offset + i] / norm)
                   : static_cast<float>((random.Chance(0.5) ? 1 : -1) / std::sqrt(static_cast<double>(size)));
      const float step = 2e-3f;
      double want = 0;
      std::vector<float> plus = params, minus = params;
      for (size_t i = 0; i < size; ++i) {
        plus[offset + i] += step * d[i];
        minus[offset + i] -= step * d[i];
        // What was really moved, after rounding.
        want += static_cast<double>(grads[offset + i]) *
                (static_cast<double>(plus[offset + i]) - static_cast<double>(minus[offset + i]));
      }
      const double got = model->Evaluate(plus, data.batch)->loss - model->Evaluate(minus, data.batch)->loss;
      EXPECT_NEAR(got, want, 2e-3 * norm * 2 * step + 2e-6)
          << parameter.name << " direction " << direction << " seed " << seed;
    }
  }
}

TEST(Gradients, Gpt) { CheckGradients(SmallGpt(), 1); }

TEST(Gradients, GptBeyondOneQueryBlock) {
  ModelConfig config = SmallGpt();
  config.context = 70;
  config.layers = 1;
  CheckGradients(config, 2);
}

// Finite differences sometimes cross a kink of ReLU or max-pooling, so the step is small here.
TEST(Gradients, Cnn) { CheckGradients(SmallCnn(), 4); }

TEST(Gradients, Mlp) { CheckGradients(SmallMlp(), 3); }

}  // namespace
}  // namespace ringmaster::engine
