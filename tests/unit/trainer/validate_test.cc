// SPDX-License-Identifier: Apache-2.0

// A validation of some samples: which ones, on how many ranks, and of a split without any.
#include "worker/trainer/validate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tests/temp_folder.h"
#include "worker/compute/engine/model.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::trainer {
namespace {

class ValidateTest : public testing::Test {
 protected:
  ValidateTest() {
    SplitMix64 random(7);
    std::string text;
    while (text.size() < 4000) text += static_cast<char>('a' + random.Below(26));
    config_.model = {.kind = engine::ModelKind::kGpt,
                     .layers = 1,
                     .heads = 2,
                     .width = 16,
                     .context = 16,
                     .vocabulary = 256,
                     .max_samples = 2};
    config_.data = {.kind = data::Kind::kText,
                    .path = folder_.Write("text", text),
                    .validation_path = "",
                    .validation_fraction = 0.2,
                    .context = 16};
    config_.samples_per_step = 8;
    config_.micro_batches = 4;
  }

  // Returns the result that all of `world` ranks have.
  Validation Run(int world, int64_t samples) {
    config_.validate_samples = samples;
    const auto dataset = data::Dataset::Open(config_.data).value();
    std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < world; ++rank) {
      fabrics.push_back(
          fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}).value());
      addresses.push_back(fabrics.back()->Address());
    }
    std::vector<Validation> results(static_cast<size_t>(world));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto comm = fabrics[static_cast<size_t>(rank)]->Connect({1, rank, addresses}).value();
        const auto model = engine::CreateModel(config_.model).value();
        std::vector<float> params(static_cast<size_t>(model->layout().elements));
        model->Initialise(1, params);
        const std::atomic<bool> cancel{false};
        const auto result =
            Validate(config_, *dataset, model.get(), {params, 1}, comm.get(), &cancel, nullptr);
        ASSERT_TRUE(result.ok()) << result.error().message;
        results[static_cast<size_t>(rank)] = *result;
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Validation& result : results) EXPECT_EQ(result.loss, results.front().loss);
    return results.front();
  }

  TempFolder folder_;
  RunConfig config_;
};

TEST_F(ValidateTest, SomeSamplesSpanTheSplitOnAnyNumberOfRanks) {
  const Validation all = Run(1, 0);
  ASSERT_GT(all.samples, 20);
  EXPECT_EQ(Run(1, all.samples + 100).loss, all.loss) << "there are no more";
  const Validation some = Run(1, 7);
  EXPECT_EQ(some.samples, 7);
  EXPECT_NE(some.loss, all.loss);
  EXPECT_EQ(Run(3, 7).loss, some.loss);
}

TEST_F(ValidateTest, WithoutSamplesThereIsNoResult) {
  config_.data.validation_fraction = 0;
  EXPECT_EQ(Run(2, 0).samples, 0);
}

}  // namespace
}  // namespace ringmaster::trainer
