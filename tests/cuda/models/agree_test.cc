// SPDX-License-Identifier: Apache-2.0

// The models of the device against those of the CPU: equal up to the rounding of sums in a different order
// and, in bf16, of activations with 8 bits of mantissa.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/models/fixtures.h"
#include "tests/sanitized.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::cuda {
namespace {

using engine::ModelConfig;
using engine::Precision;

ModelConfig CpuOf(ModelConfig config) {
  config.precision = Precision::kFp32;
  return config;
}

// Returns ||got - want|| / ||want|| of a tensor.
double Distance(std::span<const float> got, std::span<const float> want) {
  double off = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = double{got[i]} - want[i];
    off += difference * difference;
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(off) / (std::sqrt(norm) + 1e-12);
}

class Agree : public WithDevice<testing::TestWithParam<ModelConfig>> {
 protected:
  bool rounded() const { return GetParam().precision == Precision::kBf16; }
};

TEST_P(Agree, LayoutAndInitialValuesEqualThoseOfTheCpu) {
  Trial trial(GetParam());
  const auto cpu = engine::Make(CpuOf(GetParam()));
  EXPECT_EQ(trial.model().layout(), cpu->layout());
  std::vector<float> got(static_cast<size_t>(cpu->layout().elements)), want = got;
  trial.model().Initialise(3, got);
  cpu->Initialise(3, want);
  EXPECT_EQ(got, want);
}

TEST_P(Agree, LogitsLossAndEveryGradient) {
  Trial trial(GetParam());
  const auto cpu = engine::Make(CpuOf(GetParam()));
  const std::vector<float> values = engine::LivelyParams(*cpu, 5);
  for (const int samples : {GetParam().max_samples, 1}) {
    const engine::OwnedBatch data = engine::RandomBatch(GetParam(), samples, 6);
    const engine::Params params = trial.SetParams(values);

    const auto logits = trial.model().Logits(params, data.batch);
    const auto want_logits = cpu->Logits(values, data.batch);
    ASSERT_TRUE(logits.ok() && want_logits.ok());
    ASSERT_EQ(logits->size(), want_logits->size());
    // The GELU of cuBLASLt alone is 1.3e-6 from the CPU's (GemmOfDevice.ErrorOfTheFusedGelu, on an H200).
    EXPECT_LT(Distance(*logits, *want_logits), rounded() ? 2e-2 : 5e-6);

    std::vector<float> want(values.size());
    const auto want_sums = cpu->ForwardBackward(values, data.batch, want, nullptr, nullptr);
    ASSERT_TRUE(want_sums.ok());
    const StepResult got = trial.Step(params, data.batch);
    EXPECT_NEAR(got.sums.loss, want_sums->loss, (rounded() ? 1e-2 : 1e-5) * want_sums->loss);
    EXPECT_EQ(got.sums.predictions, want_sums->predictions);
    if (!rounded()) {
      EXPECT_EQ(got.sums.correct, want_sums->correct);
    }
    const auto evaluated = trial.model().Evaluate(params, data.batch);
    ASSERT_TRUE(evaluated.ok());
    EXPECT_EQ(*evaluated, got.sums);
    for (const engine::Parameter& parameter : cpu->layout().parameters) {
      const auto begin = static_cast<size_t>(parameter.offset);
      const auto size = static_cast<size_t>(parameter.size);
      EXPECT_LT(Distance(std::span(got.grads).subspan(begin, size), std::span(want).subspan(begin, size)),
                rounded() ? 6e-2 : 1e-5)
          << parameter.name << ", " << samples << " samples";
    }
  }
}

// Both sides use the update of the CPU, so that only the gradients differ. All steps run the same code, so a
// sanitizer sees five of them.
TEST_P(Agree, FiftySteps) {
  constexpr int kSteps = kSanitized ? 5 : 50;
  Trial trial(GetParam());
  const auto cpu = engine::Make(CpuOf(GetParam()));
  const optimizer::Config config{.weight_decay = 0.01};
  const auto elements = static_cast<size_t>(cpu->layout().elements);
  struct State {
    std::vector<float> params, m, v;
    void Update(const optimizer::Config& how, int64_t step, const engine::Layout& layout,
                std::span<const float> gradient) {
      State next{std::vector<float>(params.size()), m, v};
      optimizer::StepAll(how, {.step = step, .learning_rate = 3e-3}, layout,
                         {.gradient = gradient,
                          .params = params,
                          .state0 = m,
                          .state1 = v,
                          .next_params = next.params,
                          .next_state0 = next.m,
                          .next_state1 = next.v},
                         1);
      *this = std::move(next);
    }
  };
  State device{std::vector<float>(elements), std::vector<float>(elements), std::vector<float>(elements)};
  cpu->Initialise(9, device.params);
  State host = device;
  double first = 0;
  for (int step = 1; step <= kSteps; ++step) {
    // Two alternating batches, which a model can learn.
    const engine::OwnedBatch data =
        engine::RandomBatch(GetParam(), GetParam().max_samples, 20 + static_cast<uint64_t>(step % 2));
    const StepResult got =
        trial.Step(trial.SetParams(device.params, static_cast<uint64_t>(step)), data.batch);
    std::vector<float> grads(elements);
    const auto want = cpu->ForwardBackward(host.params, data.batch, grads, nullptr, nullptr);
    ASSERT_TRUE(want.ok());
    if (step == 1) first = want->loss;
    ASSERT_NEAR(got.sums.loss, want->loss, (rounded() ? 3e-2 : 2e-4) * first) << "step " << step;
    device.Update(config, step, cpu->layout(), got.grads);
    host.Update(config, step, cpu->layout(), grads);
    if (step == 50) {
      EXPECT_LT(want->loss, 0.9 * first) << "the loss did not decrease";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fp32, Agree,
                         testing::Values(engine::SmallGpt(), engine::SmallMlp(), engine::SmallCnn()));
INSTANTIATE_TEST_SUITE_P(Bf16, Agree,
                         testing::Values(Bf16Of(engine::SmallGpt()), Bf16Of(GptOfAlignedHeads()),
                                         Bf16Of(engine::SmallMlp()), Bf16Of(engine::SmallCnn())));

// Shapes that are not multiples of the tile sizes.
TEST_P(Agree, OddShapesOfGpt) {
  if (GetParam().kind != engine::ModelKind::kGpt) return;
  ModelConfig config = GetParam();
  config.layers = 1;
  config.heads = 3;
  config.width = 39;
  config.context = 67;
  config.vocabulary = 131;
  config.max_samples = 1;
  Trial trial(config);
  const auto cpu = engine::Make(CpuOf(config));
  const std::vector<float> values = engine::LivelyParams(*cpu, 15);
  const engine::OwnedBatch data = engine::RandomBatch(config, 1, 16);
  std::vector<float> want(values.size());
  ASSERT_TRUE(cpu->ForwardBackward(values, data.batch, want, nullptr, nullptr).ok());
  EXPECT_LT(Distance(trial.Step(trial.SetParams(values), data.batch).grads, want), rounded() ? 5e-2 : 1e-5);
}

}  // namespace
}  // namespace ringmaster::cuda
