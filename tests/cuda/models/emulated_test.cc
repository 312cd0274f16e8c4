// SPDX-License-Identifier: Apache-2.0

// Tests that need the emulated device: too little memory, a lost device, other orders of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/cuda/emulation/runner.h"
#include "tests/cuda/models/fixtures.h"
#include "tests/cuda/runtime/cudnn.h"
#include "tests/cuda/runtime/faults.h"
#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/epilogue.h"
#include "worker/compute/cuda/gemm_choices.h"
#include "worker/compute/cuda/runtime/error.h"

namespace ringmaster::cuda {
namespace {

TEST(EmulatedModel, TooLittleMemoryFailsWithTheArithmetic) {
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({}).value();
  const auto attention = Attention::Create({}, BindDevice(0).value()).value();
  emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + (100 << 10));
  const auto model = CreateModel(engine::SmallGpt(), stream.get(), {*gemm, *attention});
  emulation::SetDeviceMemory(int64_t{16} << 30);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, Code::kExhausted);
  EXPECT_THAT(model.error().message, testing::HasSubstr("activations "));
  EXPECT_THAT(model.error().message, testing::HasSubstr("100.0 KiB of"));
  EXPECT_THAT(model.error().message, testing::HasSubstr("raise spec.training.batch.microBatches"));
}

TEST(EmulatedModel, WaitsReportALostDevice) {
  Trial trial(engine::SmallMlp());
  const engine::Params params = trial.SetParams(engine::LivelyParams(trial.model(), 1));
  const engine::OwnedBatch data = engine::RandomBatch(engine::SmallMlp(), 2, 2);
  emulation::FailAtWait(1, 700);
  const auto sums = trial.model().ForwardBackward(params, data.batch, trial.grads(), nullptr, nullptr);
  ASSERT_FALSE(sums.ok());
  EXPECT_TRUE(MustExit(sums.error())) << sums.error().message;
  const auto evaluated = trial.model().Evaluate(params, data.batch);
  ASSERT_FALSE(evaluated.ok());
  EXPECT_TRUE(MustExit(evaluated.error()));
  emulation::FailAtWait(0, 0);
}

TEST(EmulatedModel, CancelledCallsDoNotAccumulateMemory) {
  Trial trial(engine::SmallMlp());
  const engine::Params params = trial.SetParams(engine::LivelyParams(trial.model(), 3));
  const engine::OwnedBatch data = engine::RandomBatch(engine::SmallMlp(), 2, 4);
  std::atomic<bool> cancel{true};
  int64_t blocks = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(trial.model().ForwardBackward(params, data.batch, trial.grads(), nullptr, &cancel).ok());
    if (i == 1) blocks = emulation::PinnedBytes();
  }
  EXPECT_EQ(emulation::PinnedBytes(), blocks);
}

// A member that has already recorded steps adopts the algorithms of the job that it joins.
TEST(EmulatedModel, AdoptedAlgorithmsInvalidateRecordedGraphs) {
  const engine::ModelConfig config = engine::SmallGpt();
  Trial trial(config);
  const std::vector<float> values = engine::LivelyParams(trial.model(), 5);
  const engine::Params params = trial.SetParams(values);
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 6);
  StepResult before;
  for (int i = 0; i < 3; ++i) before = trial.Step(params, data.batch);
  const auto ours = GemmChoices::Parse(trial.gemm().Choices(), "emulated products").value();
  GemmChoices theirs(ours.key());
  for (auto [shape, choice] : ours.all()) {
    choice.algorithm[0] = 1;
    theirs.Set(shape, choice);
  }
  Trial other(config);
  ASSERT_TRUE(other.gemm().Adopt(theirs.Text()).ok());
  const StepResult want = other.Step(other.SetParams(values), data.batch);
  ASSERT_NE(want.grads, before.grads) << "the other algorithm adds in a different order";
  ASSERT_TRUE(trial.gemm().Adopt(theirs.Text()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trial.Step(params, data.batch).grads, want.grads) << i;
}

// The same for attention: the job uses cuDNN, and this member has measured that its native kernels are
// faster.
TEST(EmulatedModel, AdoptedAttentionInvalidatesRecordedGraphs) {
  const engine::ModelConfig config = Bf16Of(GptOfAlignedHeads());
  const emulation::WithCudnn with({.there = true, .forward_saves_ms = -1, .backward_saves_ms = -1});
  Trial trial(config, {}, "");
  const std::vector<float> values = engine::LivelyParams(trial.model(), 5);
  const engine::Params params = trial.SetParams(values);
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 6);
  StepResult before;
  for (int i = 0; i < 3; ++i) before = trial.Step(params, data.batch);
  emulation::SetCudnn({.there = true, .forward_saves_ms = 1, .backward_saves_ms = 1});
  Trial job(config, {}, "");
  ASSERT_NE(job.attention().Fingerprint(), trial.attention().Fingerprint());
  const StepResult want = job.Step(job.SetParams(values), data.batch);
  ASSERT_NE(want.grads, before.grads) << "the emulated cuDNN adds in a different order";
  ASSERT_TRUE(trial.attention().Adopt(job.attention().Choices()).ok());
  EXPECT_EQ(job.attention().Fingerprint(), trial.attention().Fingerprint());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(trial.Step(params, data.batch).grads, want.grads) << i;
}

TEST(EmulatedModel, FailedAttentionFailsTheCall) {
  const engine::ModelConfig config = Bf16Of(GptOfAlignedHeads());
  const emulation::WithCudnn with({.there = true, .forward_saves_ms = 1, .backward_saves_ms = 1});
  Trial job(config, {}, "");
  emulation::SetCudnn({.there = true, .refuses = true});
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({}).value();
  const auto attention = Attention::Create({}, BindDevice(0).value()).value();
  ASSERT_TRUE(attention->Adopt(job.attention().Choices()).ok());
  const auto model = CreateModel(config, stream.get(), {*gemm, *attention}).value();
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 6);
  const engine::Params params = job.SetParams(engine::LivelyParams(job.model(), 5));
  const auto sums = model->ForwardBackward(params, data.batch, job.grads(), nullptr, nullptr);
  ASSERT_FALSE(sums.ok());
  EXPECT_TRUE(MustExit(sums.error())) << sums.error().message;
}

TEST(EmulatedModel, ArithmeticIncludesTheMemoryOfAttention) {
  const engine::ModelConfig config = Bf16Of(GptOfAlignedHeads());
  const emulation::WithCudnn with({.there = true, .forward_saves_ms = 1, .backward_saves_ms = 1});
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({}).value();
  const auto attention = Attention::Create({}, BindDevice(0).value()).value();
  emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + (50 << 10));
  const auto model = CreateModel(config, stream.get(), {*gemm, *attention});
  emulation::SetDeviceMemory(int64_t{16} << 30);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, testing::HasSubstr(" + attention 0.4 KiB"));
  EXPECT_THAT(model.error().message, testing::HasSubstr("50.0 KiB of"));
}

// The fused and the separate epilogue, chosen by measurement, agree.
TEST(EmulatedModel, FusedAndSeparateEpiloguesAgree) {
  for (const engine::ModelConfig& config : {engine::SmallGpt(), Bf16Of(engine::SmallGpt())}) {
    Trial fused(config), apart(config);
    const auto ours = GemmChoices::Parse(fused.gemm().Choices(), "emulated products").value();
    GemmChoices theirs(ours.key());
    for (auto [shape, choice] : ours.all()) {
      choice.fused = !HasKernel(shape.epilogue);
      theirs.Set(shape, choice);
    }
    ASSERT_TRUE(apart.gemm().Adopt(theirs.Text()).ok());
    EXPECT_NE(apart.gemm().Fingerprint(), fused.gemm().Fingerprint());
    const std::vector<float> values = engine::LivelyParams(fused.model(), 5);
    const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 6);
    const StepResult a = fused.Step(fused.SetParams(values), data.batch);
    const StepResult b = apart.Step(apart.SetParams(values), data.batch);
    const double rounding = config.precision == engine::Precision::kBf16 ? 2e-2 : 1e-5;
    EXPECT_NEAR(a.sums.loss, b.sums.loss, rounding);
    double off = 0, norm = 0;
    for (size_t i = 0; i < a.grads.size(); ++i) {
      off += (double{a.grads[i]} - b.grads[i]) * (double{a.grads[i]} - b.grads[i]);
      norm += double{a.grads[i]} * a.grads[i];
    }
    EXPECT_LT(std::sqrt(off / norm), rounding);
  }
}

TEST(EmulatedModel, BitsDoNotDependOnTheOrderOfThreads) {
  for (const engine::ModelConfig& config :
       {engine::SmallGpt(), Bf16Of(engine::SmallGpt()), engine::SmallCnn(), engine::SmallMlp()}) {
    Trial trial(config);
    const std::vector<float> values = engine::LivelyParams(trial.model(), 5);
    const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 6);
    const StepResult want = trial.Step(trial.SetParams(values), data.batch);
    for (const uint64_t seed : {1, 2, 3}) {
      const emulation::Schedule schedule(seed == 1 ? emulation::Order::kReverse : emulation::Order::kRandom,
                                         seed);
      const StepResult got = trial.Step(trial.SetParams(values), data.batch);
      EXPECT_EQ(got.sums, want.sums) << seed;
      EXPECT_EQ(std::memcmp(got.grads.data(), want.grads.data(), want.grads.size() * sizeof(float)), 0)
          << seed;
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda
