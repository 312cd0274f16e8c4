// SPDX-License-Identifier: Apache-2.0

// One forward, backward and SGD step of every model against PyTorch, to 1e-5 relative. The numbers come from
// scripts/make-torch-vectors, which computes them in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/file.h"
#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine {
namespace {

using Vectors = std::map<std::string, std::vector<float>>;

Vectors ReadVectors(const std::string& name) {
  const auto text = ReadFile("tests/unit/engine/vectors/" + name + ".bin");
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  if (!text.ok()) return {};
  size_t at = 4;
  const auto number = [&] {
    uint32_t value = 0;
    std::memcpy(&value, text->data() + at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  EXPECT_EQ(text->substr(0, 4), "RMV1");
  Vectors out;
  for (uint32_t entries = number(); entries > 0; --entries) {
    const uint32_t length = number();
    const std::string key = text->substr(at, length);
    at += length;
    std::vector<float> values(number());
    std::memcpy(values.data(), text->data() + at, values.size() * sizeof(float));
    at += values.size() * sizeof(float);
    out[key] = std::move(values);
  }
  EXPECT_EQ(at, text->size());
  return out;
}

// Largest distance over a tensor, relative to the tensor's largest value.
double Distance(std::span<const float> got, const std::vector<float>& want) {
  double off = 0, scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off = std::max(off, std::abs(static_cast<double>(got[i]) - want[i]));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return off / scale;
}

void Compare(const Vectors& vectors, const ModelConfig& config, int threads) {
  ModelConfig with_threads = config;
  with_threads.threads = threads;
  const auto model = Make(with_threads);
  std::vector<float> params(static_cast<size_t>(model->layout().elements)), grads(params.size());
  for (const Parameter& parameter : model->layout().parameters) {
    const std::vector<float>& values = vectors.at("param/" + parameter.name);
    ASSERT_EQ(static_cast<int64_t>(values.size()), parameter.size) << parameter.name;
    std::copy(values.begin(), values.end(), params.begin() + parameter.offset);
  }
  const auto integers = [&](const char* key) {
    const auto found = vectors.find(key);
    return found == vectors.end() ? std::vector<int32_t>()
                                  : std::vector<int32_t>(found->second.begin(), found->second.end());
  };
  const std::vector<int32_t> tokens = integers("tokens"), targets = integers("targets");
  const auto images = vectors.find("images");
  Batch batch{.samples = config.max_samples, .tokens = tokens, .images = {}, .targets = targets};
  if (images != vectors.end()) batch.images = images->second;
  const auto sums = model->ForwardBackward(params, batch, grads, nullptr, nullptr);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, vectors.at("loss")[0], 1e-5 * vectors.at("loss")[0]);
  for (const Parameter& parameter : model->layout().parameters) {
    const auto begin = static_cast<size_t>(parameter.offset), size = static_cast<size_t>(parameter.size);
    EXPECT_LT(Distance(std::span(grads).subspan(begin, size), vectors.at("grad/" + parameter.name)), 1e-5)
        << "gradient of " << parameter.name;
    std::vector<float> next(size);
    for (size_t i = 0; i < size; ++i) next[i] = params[begin + i] - vectors.at("lr")[0] * grads[begin + i];
    EXPECT_LT(Distance(next, vectors.at("next/" + parameter.name)), 1e-5) << "next " << parameter.name;
  }
}

TEST(Torch, Gpt) {
  const Vectors vectors = ReadVectors("gpt");
  ASSERT_TRUE(vectors.contains("config"));
  const std::vector<float>& c = vectors.at("config");
  const auto at = [&](size_t i) { return static_cast<int>(c[i]); };
  for (const int threads : {1, 3})
    Compare(vectors,
            {.kind = ModelKind::kGpt,
             .layers = at(0),
             .heads = at(1),
             .width = at(2),
             .context = at(3),
             .vocabulary = at(4),
             .max_samples = at(5)},
            threads);
}

TEST(Torch, MlpAndCnn) {
  for (const auto& [name, kind] : {std::pair{"mlp", ModelKind::kMlp}, std::pair{"cnn", ModelKind::kCnn}}) {
    SCOPED_TRACE(name);
    const Vectors vectors = ReadVectors(name);
    ASSERT_TRUE(vectors.contains("config"));
    const std::vector<float>& c = vectors.at("config");
    const auto at = [&](size_t i) { return static_cast<int>(c[i]); };
    for (const int threads : {1, 3})
      Compare(vectors,
              {.kind = kind,
               .layers = at(0),
               .width = at(1),
               .channels = at(2),
               .height = at(3),
               .image_width = at(4),
               .classes = at(5),
               .max_samples = at(6)},
              threads);
  }
}

}  // namespace
}  // namespace ringmaster::engine
