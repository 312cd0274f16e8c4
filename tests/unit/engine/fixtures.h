// SPDX-License-Identifier: Apache-2.0

// Small models and batches for the engine's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::engine {

inline std::vector<float> RandomFloats(uint64_t seed, int64_t n, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(n));
  SplitMix64 random(seed);
  for (float& value : values) value = scale * static_cast<float>(2 * random.Uniform() - 1);
  return values;
}

inline ModelConfig SmallGpt() {
  return {.kind = ModelKind::kGpt,
          .layers = 2,
          .heads = 2,
          .width = 24,
          .context = 10,
          .vocabulary = 37,
          .max_samples = 3};
}

inline ModelConfig SmallMlp() {
  return {.kind = ModelKind::kMlp,
          .layers = 2,
          .width = 19,
          .channels = 2,
          .height = 5,
          .image_width = 7,
          .classes = 11,
          .max_samples = 5};
}

inline ModelConfig SmallCnn() {
  return {.kind = ModelKind::kCnn,
          .layers = 2,
          .width = 5,
          .channels = 2,
          .height = 7,
          .image_width = 9,
          .classes = 11,
          .max_samples = 6};
}

inline std::unique_ptr<Model> Make(const ModelConfig& config) {
  auto model = CreateModel(config);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return std::move(model).value();
}

// A batch that owns its memory. Every seventh target does not count.
struct OwnedBatch {
  std::vector<int32_t> tokens;
  std::vector<float> images;
  std::vector<int32_t> targets;
  Batch batch;
};

inline OwnedBatch RandomBatch(const ModelConfig& config, int samples, uint64_t seed) {
  OwnedBatch out;
  SplitMix64 random(seed);
  const bool gpt = config.kind == ModelKind::kGpt;
  const int predictions = gpt ? samples * config.context : samples;
  const int classes = gpt ? config.vocabulary : config.classes;
  if (gpt) {
    for (int i = 0; i < predictions; ++i)
      out.tokens.push_back(static_cast<int32_t>(random.Below(static_cast<uint64_t>(classes))));
  } else {
    out.images = RandomFloats(
        seed + 1, static_cast<int64_t>(samples) * config.channels * config.height * config.image_width);
  }
  for (int i = 0; i < predictions; ++i)
    out.targets.push_back(i % 7 == 6 ? -1
                                     : static_cast<int32_t>(random.Below(static_cast<uint64_t>(classes))));
  out.batch = {.samples = samples, .tokens = out.tokens, .images = out.images, .targets = out.targets};
  return out;
}

// Parameters large enough that every gradient is well above the noise of finite differences.
inline std::vector<float> LivelyParams(const Model& model, uint64_t seed) {
  std::vector<float> params(static_cast<size_t>(model.layout().elements));
  for (size_t i = 0; i < model.layout().parameters.size(); ++i) {
    const Parameter& parameter = model.layout().parameters[i];
    const bool gain = parameter.name.find("ln_") != std::string::npos && parameter.name.ends_with("weight");
    const std::vector<float> values = RandomFloats(seed + i, parameter.size, 0.4f);
    for (size_t j = 0; j < values.size(); ++j)
      params[static_cast<size_t>(parameter.offset) + j] = (gain ? 1.0f : 0.0f) + values[j];
  }
  return params;
}

}  // namespace ringmaster::engine
