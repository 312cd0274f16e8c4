// SPDX-License-Identifier: Apache-2.0

// Against PyTorch's own optimizers, numbers made by scripts/make-optimizer-vectors.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {
namespace {

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

TEST(PyTorch, SgdAndAdamWTakeTheSameSteps) {
  const auto text = ReadFile("tests/unit/optimizer/vectors.json");
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto vectors = ParseJson(*text);
  ASSERT_TRUE(vectors.ok()) << vectors.error().message;
  int compared = 0;
  for (const Json& c : vectors->at("cases")) {
    SCOPED_TRACE(c.dump());
    Config config;
    config.weight_decay = c.at("decay").get<double>();
    config.clip_norm = c.value("clip", 0.0);
    if (c.at("kind") == "sgd") {
      config.kind = Kind::kSgd;
      config.momentum = c.at("momentum").get<double>();
    } else {
      config.beta1 = c.at("betas")[0].get<double>();
      config.beta2 = c.at("betas")[1].get<double>();
      config.epsilon = c.at("epsilon").get<double>();
    }
    auto params = vectors->at("start").get<std::vector<float>>();
    const size_t n = params.size();
    std::vector<float> m(n, 0), v(n, 0), next(n), next_m(n), next_v(n);
    int64_t step = 0;
    for (const Json& row : vectors->at("gradients")) {
      const auto gradient = row.get<std::vector<float>>();
      ++step;
      const bool sgd = config.kind == Kind::kSgd;
      Step(config,
           {.step = step,
            .learning_rate = c.at("rate").get<double>(),
            .gradient_scale = ClipFactor(config.clip_norm, Norm(gradient))},
           true,
           {gradient, params, m, sgd ? std::span<const float>() : std::span<const float>(v), next, next_m,
            sgd ? std::span<float>() : std::span<float>(next_v)});
      params.swap(next);
      m.swap(next_m);
      v.swap(next_v);
      const auto want = c.at("after")[static_cast<size_t>(step - 1)].get<std::vector<float>>();
      for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(params[i], want[i], 2e-6 * std::abs(want[i]) + 1e-9)
            << "step " << step << " element " << i;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 6 * 5 * 8);
}

}  // namespace
}  // namespace ringmaster::optimizer
