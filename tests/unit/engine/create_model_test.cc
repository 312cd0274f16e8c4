// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/engine/fixtures.h"
#include "worker/compute/engine/initialise.h"

namespace ringmaster::engine {
namespace {

TEST(CreateModel, RefusesImpossibleConfigurationsWithFieldAndReason) {
  struct Bad {
    ModelConfig config;
    const char* message;
  };
  const auto gpt = [](auto change) {
    ModelConfig config = SmallGpt();
    change(config);
    return config;
  };
  const auto mlp = [](auto change) {
    ModelConfig config = SmallMlp();
    change(config);
    return config;
  };
  const auto cnn = [](auto change) {
    ModelConfig config = SmallCnn();
    change(config);
    return config;
  };
  const Bad table[] = {
      {gpt([](ModelConfig& c) { c.layers = 0; }), "layers: must be at least 1 (got 0)"},
      {gpt([](ModelConfig& c) { c.heads = 5; }), "width: must be divisible by heads (got 24 and 5)"},
      {gpt([](ModelConfig& c) { c.heads = -1; }), "heads: must be at least 1 (got -1)"},
      {gpt([](ModelConfig& c) { c.context = 0; }), "context: must be at least 1 (got 0)"},
      {gpt([](ModelConfig& c) { c.vocabulary = 0; }), "vocabulary: must be at least 1 (got 0)"},
      {gpt([](ModelConfig& c) { c.threads = 0; }), "threads: must be at least 1 (got 0)"},
      {gpt([](ModelConfig& c) { c.max_samples = 0; }), "max_samples: must be at least 1 (got 0)"},
      {gpt([](ModelConfig& c) { c.width = 1 << 21; }), "width: must be at most 1048576 (got 2097152)"},
      {mlp([](ModelConfig& c) { c.classes = 0; }), "classes: must be at least 1 (got 0)"},
      {mlp([](ModelConfig& c) { c.height = 0; }), "height: must be at least 1 (got 0)"},
      {cnn([](ModelConfig& c) { c.layers = 3; }),
       "layers: every stage halves the image, so 7 x 9 allows at most 2 (got 3)"},
      {cnn([](ModelConfig& c) { c.width = 1 << 20; }),
       "width: 1048576 doubled 1 times is more than 1048576 channels"},
  };
  for (const Bad& bad : table) {
    const auto model = CreateModel(bad.config);
    ASSERT_FALSE(model.ok()) << bad.message;
    EXPECT_EQ(model.error().code, Code::kInvalid);
    EXPECT_EQ(model.error().message, bad.message);
  }
}

TEST(CreateModel, InitialisesFromTheSeedAlone) {
  for (const ModelConfig& config : {SmallGpt(), SmallMlp(), SmallCnn()}) {
    const auto model = Make(config);
    std::vector<float> a(static_cast<size_t>(model->layout().elements), 9.0f), b = a, c = a;
    model->Initialise(1, a);
    Make(config)->Initialise(1, b);
    model->Initialise(2, c);
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
  }
}

// Threads fill pieces of a tensor; the values are those of a plain loop over the tensor.
TEST(CreateModel, InitialValuesDoNotDependOnTheNumberOfThreads) {
  constexpr Initial kInitial = {.mean = 0.5f, .deviation = 0.02f};
  Layout layout;
  layout.parameters.resize(2);
  layout.parameters[0].size = 600'001;  // three pieces, the last one odd
  layout.parameters[1].offset = 600'064;
  layout.parameters[1].size = 7;
  layout.elements = 600'128;
  std::vector<float> want(600'128, 0.0f);
  FillNormal(3, 0, kInitial, std::span(want).first(600'001));
  FillNormal(3, 1, kInitial, std::span(want).subspan(600'064, 7));
  for (const int threads : {1, 2, 5}) {
    std::vector<float> got(want.size(), 9.0f);
    InitialiseArena(3, layout, std::vector(2, kInitial), got, threads);
    EXPECT_EQ(got, want) << threads;
  }
}

TEST(CreateModel, InitialValuesHaveGpt2Statistics) {
  const auto model = Make({.kind = ModelKind::kGpt, .layers = 2});
  std::vector<float> params(static_cast<size_t>(model->layout().elements), 9.0f);
  model->Initialise(7, params);
  for (const Parameter& parameter : model->layout().parameters) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < parameter.size; ++i) {
      const double value = params[static_cast<size_t>(parameter.offset + i)];
      sum += value;
      squares += value * value;
    }
    const auto n = static_cast<double>(parameter.size);
    const double deviation = std::sqrt(squares / n);
    if (parameter.name.ends_with("bias")) {
      EXPECT_EQ(squares, 0) << parameter.name;
    } else if (parameter.name.find("ln_") != std::string::npos) {
      EXPECT_EQ(sum, n) << parameter.name;
    } else {
      const double want = parameter.name.ends_with("c_proj.weight") ? 0.01 : 0.02;
      EXPECT_NEAR(deviation, want, 0.03 * want) << parameter.name;
      EXPECT_NEAR(sum / n, 0, 5 * want / std::sqrt(n)) << parameter.name;
    }
    const int64_t padded = (parameter.size + kBlock - 1) / kBlock * kBlock;
    for (int64_t i = parameter.size; i < padded; ++i)
      ASSERT_EQ(params[static_cast<size_t>(parameter.offset + i)], 0.0f);
  }
}

}  // namespace
}  // namespace ringmaster::engine
