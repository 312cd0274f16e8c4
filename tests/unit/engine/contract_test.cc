// SPDX-License-Identifier: Apache-2.0

// The determinism contract of model.h and the rules around a call: buckets, cancelling, short batches.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine {
namespace {

struct Step {
  Sums sums;
  std::vector<float> grads;
};

Step RunStep(Model& model, const std::vector<float>& params, const Batch& batch, size_t misalign = 0) {
  std::vector<float> p(params.size() + 16), g(params.size() + 16, 1e9f);
  std::copy(params.begin(), params.end(), p.begin() + static_cast<std::ptrdiff_t>(misalign));
  const auto sums = model.ForwardBackward(std::span(p).subspan(misalign, params.size()), batch,
                                          std::span(g).subspan(misalign, params.size()), nullptr, nullptr);
  EXPECT_TRUE(sums.ok());
  return {*sums,
          {g.begin() + static_cast<std::ptrdiff_t>(misalign),
           g.begin() + static_cast<std::ptrdiff_t>(misalign + params.size())}};
}

void ExpectSameBits(const Step& a, const Step& b, const std::string& what) {
  EXPECT_EQ(a.sums, b.sums) << what;
  ASSERT_EQ(a.grads.size(), b.grads.size());
  EXPECT_EQ(std::memcmp(a.grads.data(), b.grads.data(), a.grads.size() * sizeof(float)), 0) << what;
}

ModelConfig Bf16(ModelConfig config) {
  config.precision = Precision::kBf16;
  return config;
}

class Contract : public testing::TestWithParam<ModelConfig> {
 protected:
  // Sums taken over other shapes are rounded differently; in bf16 also the operands are.
  double Tolerance() const { return GetParam().precision == Precision::kBf16 ? 3e-2 : 1e-5; }
};

TEST_P(Contract, EqualBitsForAnyThreadsAlignmentAndHistory) {
  ModelConfig config = GetParam();
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 5);
  const OwnedBatch one = RandomBatch(config, config.max_samples, 6);
  const OwnedBatch other = RandomBatch(config, config.max_samples - 1, 7);
  const Step want = RunStep(*model, params, one.batch);
  const Step want_other = RunStep(*model, params, other.batch);
  ExpectSameBits(RunStep(*model, params, one.batch), want, "again, after another batch");
  (void)model->Evaluate(params, other.batch);
  ExpectSameBits(RunStep(*model, params, one.batch, 1), want, "moved by one float");
  ExpectSameBits(RunStep(*model, params, one.batch, 5), want, "moved by five floats");
  for (const int threads : {2, 3}) {
    config.threads = threads;
    const auto threaded = Make(config);
    ExpectSameBits(RunStep(*threaded, params, other.batch), want_other, "other batch first, more threads");
    ExpectSameBits(RunStep(*threaded, params, one.batch), want, std::to_string(threads) + " threads");
  }
}

TEST_P(Contract, GradientsOfABatchAreTheSumOverItsSamples) {
  const ModelConfig config = GetParam();
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 8);
  const OwnedBatch all = RandomBatch(config, config.max_samples, 9);
  const Step whole = RunStep(*model, params, all.batch);
  std::vector<double> sum(params.size(), 0);
  Sums sums;
  for (int s = 0; s < config.max_samples; ++s) {
    Batch one = all.batch;
    one.samples = 1;
    const auto cut = [&](auto span) {
      const size_t each = span.size() / static_cast<size_t>(config.max_samples);
      return span.subspan(each * static_cast<size_t>(s), each);
    };
    one.tokens = cut(one.tokens);
    one.images = cut(one.images);
    one.targets = cut(one.targets);
    const Step step = RunStep(*model, params, one);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += step.grads[i];
    sums.loss += step.sums.loss;
    sums.correct += step.sums.correct;
    sums.predictions += step.sums.predictions;
  }
  EXPECT_NEAR(sums.loss, whole.sums.loss, Tolerance());
  if (config.precision == Precision::kFp32) {
    EXPECT_EQ(sums.correct, whole.sums.correct);
  }
  EXPECT_EQ(sums.predictions, whole.sums.predictions);
  for (size_t i = 0; i < sum.size(); ++i)
    ASSERT_NEAR(whole.grads[i], sum[i], Tolerance() * (1 + std::abs(sum[i]))) << i;
}

TEST_P(Contract, BucketsAreFinalWhenAnnounced) {
  const ModelConfig config = GetParam();
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 10);
  const OwnedBatch data = RandomBatch(config, config.max_samples, 11);
  std::vector<float> grads(params.size(), 1e9f), seen(params.size());
  const Layout& layout = model->layout();
  int next = 0;
  const auto sums = model->ForwardBackward(
      params, data.batch, grads,
      [&](int bucket) {
        ASSERT_EQ(bucket, next++);
        const Bucket& b = layout.buckets[static_cast<size_t>(bucket)];
        std::copy(grads.begin() + b.begin, grads.begin() + b.end, seen.begin() + b.begin);
      },
      nullptr);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(next, static_cast<int>(layout.buckets.size()));
  EXPECT_EQ(std::memcmp(seen.data(), grads.data(), grads.size() * sizeof(float)), 0);
  // Padding is zero.
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const int64_t end = i + 1 < layout.parameters.size() ? layout.parameters[i + 1].offset : layout.elements;
    for (int64_t j = layout.parameters[i].offset + layout.parameters[i].size; j < end; ++j)
      ASSERT_EQ(grads[static_cast<size_t>(j)], 0.0f);
  }
}

TEST_P(Contract, AnEmptyBatchGivesZeroGradientsAndAllBuckets) {
  const auto model = Make(GetParam());
  const std::vector<float> params = LivelyParams(*model, 12);
  std::vector<float> grads(params.size(), 1e9f);
  int buckets = 0;
  const auto sums = model->ForwardBackward(
      params, {}, grads, [&](int) { ++buckets; }, nullptr);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(*sums, Sums{});
  EXPECT_EQ(buckets, static_cast<int>(model->layout().buckets.size()));
  for (const float g : grads) ASSERT_EQ(g, 0.0f);
}

TEST_P(Contract, CancelsAtEveryLayerAndRecovers) {
  const ModelConfig config = GetParam();
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 13);
  const OwnedBatch data = RandomBatch(config, config.max_samples, 14);
  const Step want = RunStep(*model, params, data.batch);
  int beats = 0;
  model->SetProgressHook([&] { ++beats; });
  (void)RunStep(*model, params, data.batch);
  const int all = beats;
  EXPECT_GE(all, 2 * config.layers);
  for (int stop = 1; stop <= all; ++stop) {
    std::atomic<bool> cancel{false};
    beats = 0;
    model->SetProgressHook([&] { cancel = ++beats >= stop; });
    std::vector<float> grads(params.size());
    const auto sums = model->ForwardBackward(params, data.batch, grads, nullptr, &cancel);
    ASSERT_FALSE(sums.ok()) << "stop at " << stop;
    EXPECT_EQ(sums.error().code, Code::kCancelled);
    EXPECT_EQ(beats, stop);
  }
  model->SetProgressHook(nullptr);
  ExpectSameBits(RunStep(*model, params, data.batch), want, "after cancelled calls");
}

TEST_P(Contract, RefusesBatchesThatDoNotFit) {
  const ModelConfig config = GetParam();
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 15);
  std::vector<float> grads(params.size());
  const auto refused = [&](const Batch& batch, const std::string& message) {
    const auto sums = model->ForwardBackward(params, batch, grads, nullptr, nullptr);
    ASSERT_FALSE(sums.ok()) << message;
    EXPECT_EQ(sums.error().code, Code::kInvalid);
    EXPECT_NE(sums.error().message.find(message), std::string::npos) << sums.error().message;
  };
  OwnedBatch data = RandomBatch(config, config.max_samples, 16);
  Batch batch = data.batch;
  batch.samples = config.max_samples + 1;
  refused(batch, "at most");
  batch = data.batch;
  batch.targets = batch.targets.subspan(1);
  refused(batch, "targets");
  data.targets[0] = 1000;
  refused(data.batch, "target 1000 is not below");
  data = RandomBatch(config, config.max_samples, 16);
  if (config.kind == ModelKind::kGpt) {
    data.tokens[0] = config.vocabulary;
    refused(data.batch, "outside the vocabulary");
  } else {
    batch = data.batch;
    batch.images = batch.images.subspan(1);
    refused(batch, "image values");
  }
}

INSTANTIATE_TEST_SUITE_P(Gpt, Contract, testing::Values(SmallGpt(), Bf16(SmallGpt())));
INSTANTIATE_TEST_SUITE_P(Cnn, Contract, testing::Values(SmallCnn(), Bf16(SmallCnn())));
INSTANTIATE_TEST_SUITE_P(Mlp, Contract, testing::Values(SmallMlp(), Bf16(SmallMlp())));

}  // namespace
}  // namespace ringmaster::engine
