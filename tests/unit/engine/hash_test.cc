// SPDX-License-Identifier: Apache-2.0

// Initial values, losses and gradients of each model in fp32 have one hash on every CPU. scripts/test runs
// this with all instruction sets of the CPU and as on one without AVX-512.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>

#include "base/hash.h"
#include "tests/unit/engine/fixtures.h"
#include "worker/compute/engine/initialise.h"

namespace ringmaster::engine {
namespace {

// The constants change only with a formula, and then so do the weights of every run: raise
// numerics/revision.h.
TEST(HashOfEveryCpu, InitialValues) {
  std::vector<float> values(100001);
  FillNormal(7, 3, {.mean = 0.25f, .deviation = 0.02f}, values, 0);
  const uint64_t hash = Hash64(std::as_bytes(std::span(values)));
  EXPECT_EQ(hash, 0x70271d7d47341171u) << fmt::format("0x{:016x}", hash);
}

uint64_t HashOfStep(const ModelConfig& config) {
  const auto model = Make(config);
  const std::vector<float> params = LivelyParams(*model, 5);
  const OwnedBatch batch = RandomBatch(config, config.max_samples, 6);
  std::vector<float> grads(params.size());
  const auto sums = model->ForwardBackward(params, batch.batch, grads, nullptr, nullptr);
  EXPECT_TRUE(sums.ok());
  return Hash64(std::as_bytes(std::span(grads))) * 31 + Hash64(std::as_bytes(std::span(&sums->loss, 1)));
}

TEST(HashOfEveryCpu, GradientsOfGpt) {
  const uint64_t hash = HashOfStep(SmallGpt());
  EXPECT_EQ(hash, 0x0647f94b2f7d614bu) << fmt::format("0x{:016x}", hash);
}

TEST(HashOfEveryCpu, GradientsOfMlp) {
  const uint64_t hash = HashOfStep(SmallMlp());
  EXPECT_EQ(hash, 0x61b7c8665fb681edu) << fmt::format("0x{:016x}", hash);
}

TEST(HashOfEveryCpu, GradientsOfCnn) {
  const uint64_t hash = HashOfStep(SmallCnn());
  EXPECT_EQ(hash, 0xfef98f95fd4e8b81u) << fmt::format("0x{:016x}", hash);
}

}  // namespace
}  // namespace ringmaster::engine
