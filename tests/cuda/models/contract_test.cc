// SPDX-License-Identifier: Apache-2.0

// The contract of worker/compute/engine/model.h on the device: determinism, order, cancellation and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/cuda/models/fixtures.h"

namespace ringmaster::cuda {
namespace {

using engine::ModelConfig;

void ExpectSameBits(const StepResult& a, const StepResult& b, const std::string& what) {
  EXPECT_EQ(a.sums, b.sums) << what;
  ASSERT_EQ(a.grads.size(), b.grads.size());
  EXPECT_EQ(std::memcmp(a.grads.data(), b.grads.data(), a.grads.size() * sizeof(float)), 0) << what;
}

class Contract : public WithDevice<testing::TestWithParam<ModelConfig>> {};

TEST_P(Contract, EqualBitsIndependentOfEarlierCalls) {
  const ModelConfig config = GetParam();
  Trial trial(config);
  const std::vector<float> values = engine::LivelyParams(trial.model(), 5);
  const engine::OwnedBatch one = engine::RandomBatch(config, config.max_samples, 6);
  const engine::OwnedBatch less = engine::RandomBatch(config, config.max_samples - 1, 7);
  const StepResult want = trial.Step(trial.SetParams(values), one.batch);
  const StepResult want_less = trial.Step(trial.SetParams(values), less.batch);
  ExpectSameBits(trial.Step(trial.SetParams(values), one.batch), want, "again, after another batch");
  ASSERT_TRUE(trial.model().Evaluate(trial.SetParams(values), less.batch).ok());
  ExpectSameBits(trial.Step(trial.SetParams(values), less.batch), want_less, "after an evaluation");
  Trial other(config);
  ExpectSameBits(other.Step(other.SetParams(values), less.batch), want_less, "another model, other order");
  ExpectSameBits(other.Step(other.SetParams(values), one.batch), want, "another model");
}

TEST_P(Contract, NoStateOfEarlierParametersRemains) {
  const ModelConfig config = GetParam();
  Trial used(config);
  Trial fresh(config);
  std::vector<float> values = engine::LivelyParams(used.model(), 8);
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 9);
  const StepResult before = used.Step(used.SetParams(values, 1), data.batch);
  for (float& value : values) value *= -0.5f;
  const StepResult want = fresh.Step(fresh.SetParams(values), data.batch);
  ExpectSameBits(used.Step(used.SetParams(values, 2), data.batch), want, "a new version");
  EXPECT_NE(want.grads, before.grads);
  for (float& value : values) value *= -2.0f;
  ExpectSameBits(used.Step(used.SetParams(values, 0), data.batch), before, "no version");
}

// The third call of a kind replays the graphs that the second one recorded.
TEST_P(Contract, ReplayedCallsGiveTheBitsOfEnqueuedOnes) {
  const ModelConfig config = GetParam();
  Trial replays(config);
  Trial plain(config, {.graphs = false});
  std::vector<float> values = engine::LivelyParams(plain.model(), 21);
  for (uint64_t step = 1; step <= 6; ++step) {
    const std::string what = "step " + std::to_string(step);
    const int samples = step == 4 ? 1 : config.max_samples;
    const engine::OwnedBatch data = engine::RandomBatch(config, samples, 30 + step);
    const StepResult want = plain.Step(plain.SetParams(values, step), data.batch);
    ExpectSameBits(replays.Step(replays.SetParams(values, step), data.batch), want, what);
    const auto evaluated = replays.model().Evaluate(replays.SetParams(values, step), data.batch);
    ASSERT_TRUE(evaluated.ok());
    EXPECT_EQ(*evaluated, want.sums) << what;
    for (float& value : values) value *= 0.9f;
  }
  // Parameters at other addresses, as after a step that writes the other image of them.
  std::vector<Buffer<float>> images;
  for (int i = 0; i < 7; ++i) images.push_back(Uploaded(replays.stream(), values));
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 40);
  const StepResult want = plain.Step(plain.SetParams(values), data.batch);
  for (int round = 0; round < 2; ++round)
    for (const Buffer<float>& image : images)
      ExpectSameBits(replays.Step(engine::Params(image.span(), 0), data.batch), want, "another image");
  for (size_t i = 0; i < plain.model().MatmulCosts().size(); ++i)
    EXPECT_GT(replays.model().MatmulCosts()[i].calls, plain.model().MatmulCosts()[i].calls)
        << "costs include replays";
}

TEST_P(Contract, AwaitReturnsTheSumsInOrder) {
  const ModelConfig config = GetParam();
  Trial trial(config);
  const std::vector<float> values = engine::LivelyParams(trial.model(), 10);
  const engine::Params params = trial.SetParams(values, 1);
  std::vector<engine::OwnedBatch> data;
  std::vector<engine::Sums> want;
  for (uint64_t i = 0; i < 3; ++i) {
    data.push_back(engine::RandomBatch(config, config.max_samples, 11 + i));
    want.push_back(trial.Step(params, data.back().batch).sums);
  }
  for (int round = 0; round < 2; ++round) {
    for (const engine::OwnedBatch& each : data)
      ASSERT_TRUE(trial.model().Enqueue(params, each.batch, trial.grads(), nullptr, nullptr).ok());
    ASSERT_TRUE(trial.model().Enqueue(params, {}, trial.grads(), nullptr, nullptr).ok());
    const auto got = trial.model().Await();
    ASSERT_TRUE(got.ok());
    EXPECT_THAT(*got, testing::ElementsAre(want[0], want[1], want[2], engine::Sums{}));
  }
  const auto none = trial.model().Await();
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

TEST_P(Contract, BucketsAreFinalWhenReported) {
  const ModelConfig config = GetParam();
  Trial trial(config);
  const std::vector<float> values = engine::LivelyParams(trial.model(), 12);
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 13);
  const engine::Params params = trial.SetParams(values);
  const StepResult want = trial.Step(params, data.batch);
  const engine::Layout& layout = trial.model().layout();
  int next = 0;
  const auto sums = trial.model().ForwardBackward(
      params, data.batch, trial.grads(),
      [&](int bucket) {
        ASSERT_EQ(bucket, next++);
        const engine::Bucket& b = layout.buckets[static_cast<size_t>(bucket)];
        const auto begin = static_cast<size_t>(b.begin);
        const auto size = static_cast<size_t>(b.end - b.begin);
        const std::vector<float> seen = trial.Download(trial.grads().subspan(begin, size));
        EXPECT_EQ(std::memcmp(seen.data(), want.grads.data() + begin, size * sizeof(float)), 0) << bucket;
      },
      nullptr);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(next, static_cast<int>(layout.buckets.size()));
  // Padding is zero.
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const int64_t end = i + 1 < layout.parameters.size() ? layout.parameters[i + 1].offset : layout.elements;
    for (int64_t j = layout.parameters[i].offset + layout.parameters[i].size; j < end; ++j)
      ASSERT_EQ(want.grads[static_cast<size_t>(j)], 0.0f) << layout.parameters[i].name;
  }
}

TEST_P(Contract, AnEmptyBatchGivesZeroGradientsAndAllBuckets) {
  Trial trial(GetParam());
  const engine::Params params = trial.SetParams(engine::LivelyParams(trial.model(), 14));
  const StepResult step = trial.Step(params, {});
  EXPECT_EQ(step.sums, engine::Sums{});
  for (const float g : step.grads) ASSERT_EQ(g, 0.0f);
  int buckets = 0;
  ASSERT_TRUE(trial.model()
                  .Enqueue(
                      params, {}, trial.grads(), [&](int) { ++buckets; }, nullptr)
                  .ok());
  EXPECT_EQ(buckets, static_cast<int>(trial.model().layout().buckets.size()));
  ASSERT_TRUE(trial.model().Await().ok());
}

TEST_P(Contract, CancelsAtEveryLayerAndRecovers) {
  const ModelConfig config = GetParam();
  Trial trial(config);
  const engine::Params params = trial.SetParams(engine::LivelyParams(trial.model(), 15));
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 16);
  const StepResult want = trial.Step(params, data.batch);
  int beats = 0;
  trial.model().SetProgressHook([&] { ++beats; });
  (void)trial.Step(params, data.batch);
  const int all = beats;
  EXPECT_GE(all, 2 * config.layers);
  for (int stop = 1; stop <= all; ++stop) {
    std::atomic<bool> cancel{false};
    beats = 0;
    trial.model().SetProgressHook([&] { cancel = ++beats >= stop; });
    const auto sums = trial.model().ForwardBackward(params, data.batch, trial.grads(), nullptr, &cancel);
    ASSERT_FALSE(sums.ok()) << "stop at " << stop;
    EXPECT_EQ(sums.error().code, Code::kCancelled);
    EXPECT_EQ(beats, stop);
  }
  trial.model().SetProgressHook(nullptr);
  ExpectSameBits(trial.Step(params, data.batch), want, "after cancelled calls");
}

TEST_P(Contract, RejectsBatchesThatDoNotFit) {
  const ModelConfig config = GetParam();
  Trial trial(config);
  const engine::Params params = trial.SetParams(engine::LivelyParams(trial.model(), 17));
  const auto refused = [&](const engine::Batch& batch, const std::string& message) {
    const auto sums = trial.model().ForwardBackward(params, batch, trial.grads(), nullptr, nullptr);
    ASSERT_FALSE(sums.ok()) << message;
    EXPECT_EQ(sums.error().code, Code::kInvalid);
    EXPECT_THAT(sums.error().message, testing::HasSubstr(message));
  };
  engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 18);
  engine::Batch batch = data.batch;
  batch.samples = config.max_samples + 1;
  refused(batch, "at most");
  data.targets[0] = 1000;
  refused(data.batch, "target 1000 is not below");
}

INSTANTIATE_TEST_SUITE_P(Fp32, Contract,
                         testing::Values(engine::SmallGpt(), engine::SmallMlp(), engine::SmallCnn()));
INSTANTIATE_TEST_SUITE_P(Bf16, Contract,
                         testing::Values(Bf16Of(engine::SmallGpt()), Bf16Of(GptOfAlignedHeads()),
                                         Bf16Of(engine::SmallMlp()), Bf16Of(engine::SmallCnn())));

class Head : public WithDevice<testing::TestWithParam<engine::Precision>> {};

// 300 tokens in chunks of 128, 128 and 44.
TEST_P(Head, ChunksOfLogitsGiveTheSameResults) {
  ModelConfig config = engine::SmallGpt();
  config.precision = GetParam();
  config.layers = 1;
  config.context = 100;
  Trial whole(config);
  Trial cut(config, {.logits_bytes = 32 << 10});
  const std::vector<float> values = engine::LivelyParams(whole.model(), 19);
  const engine::OwnedBatch data = engine::RandomBatch(config, config.max_samples, 20);
  const StepResult want = whole.Step(whole.SetParams(values), data.batch);
  const StepResult got = cut.Step(cut.SetParams(values), data.batch);
  EXPECT_GT(cut.model().MatmulCosts().size(), whole.model().MatmulCosts().size());
  const auto logits = whole.model().Logits(whole.SetParams(values), data.batch);
  const auto cut_logits = cut.model().Logits(cut.SetParams(values), data.batch);
  ASSERT_TRUE(logits.ok() && cut_logits.ok());
#ifdef RINGMASTER_TESTS_ON_GPU
  // The library may add in another order for another number of rows.
  const double rounding = config.precision == engine::Precision::kBf16 ? 1e-2 : 1e-5;
#else
  const double rounding = 0;
  EXPECT_EQ(got.sums, want.sums);
#endif
  EXPECT_NEAR(got.sums.loss, want.sums.loss, rounding * want.sums.loss);
  EXPECT_EQ(got.sums.predictions, want.sums.predictions);
  for (size_t i = 0; i < logits->size(); ++i)
    ASSERT_NEAR((*cut_logits)[i], (*logits)[i], rounding * (1 + std::abs((*logits)[i]))) << i;
  for (size_t i = 0; i < want.grads.size(); ++i)
    ASSERT_NEAR(got.grads[i], want.grads[i], 1e-5 * (1 + std::abs(want.grads[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Precisions, Head,
                         testing::Values(engine::Precision::kFp32, engine::Precision::kBf16));

class CreateModelOnDevice : public WithDevice<testing::Test> {};

TEST_F(CreateModelOnDevice, RejectsUnsupportedConfigurations) {
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({}).value();
  const auto attention = Attention::Create({}, BindDevice(0).value()).value();
  ModelConfig config = engine::SmallGpt();
  config.heads = 5;
  const auto impossible = CreateModel(config, stream.get(), {*gemm, *attention});
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().message, "width: must be divisible by heads (got 24 and 5)");
  config.heads = 1;
  config.width = 129;
  const auto wide = CreateModel(config, stream.get(), {*gemm, *attention});
  ASSERT_FALSE(wide.ok());
  EXPECT_EQ(wide.error().message, "heads: on a GPU the head size is at most 128 (got 129 / 1)");
  config.heads = 128;
  config.width = 128 * 128;
  const auto wider = CreateModel(config, stream.get(), {*gemm, *attention});
  ASSERT_FALSE(wider.ok());
  EXPECT_EQ(wider.error().message, "width: on a GPU at most 12288 (got 16384)");
  config = engine::SmallGpt();
  config.max_samples = 65536;
  const auto many = CreateModel(config, stream.get(), {*gemm, *attention});
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().message,
            "microBatches: on a GPU a micro-batch has at most 65535 samples (got 65536): raise it");
}

}  // namespace
}  // namespace ringmaster::cuda
