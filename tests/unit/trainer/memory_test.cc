// SPDX-License-Identifier: Apache-2.0

// Parses the kernel's report about a process's memory.
#include "worker/trainer/memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringmaster::trainer {
namespace {

constexpr char kText[] =
    "55b5c9901000-7ffe67d41000 ---p 00000000 00:00 0                          [rollup]\n"
    "Rss:                1768 kB\n"
    "Pss:                 288 kB\n"
    "Pss_Dirty:           112 kB\n"
    "Pss_Anon:            112 kB\n"
    "Pss_File:            170 kB\n"
    "Pss_Shmem:             6 kB\n";

TEST(MemoryUsage, MappedFilesAreCountedSeparately) {
  const auto held = ParseMemoryUsage(kText);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->own, 118 * 1024);
  EXPECT_EQ(held->files, 170 * 1024);
}

TEST(MemoryUsage, AnOldKernelReportsUnavailable) {
  const auto held = ParseMemoryUsage("Rss: 1 kB\nPss: 1 kB\n");
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error().code, Code::kUnavailable);
}

TEST(MemoryUsage, CountsTouchedMemory) {
  const auto before = ReadMemoryUsage();
  if (!before.ok()) GTEST_SKIP() << before.error().message;
  const std::vector<char> touched(size_t{32} << 20, 1);
  const auto after = ReadMemoryUsage();
  ASSERT_TRUE(after.ok());
  EXPECT_GE(after->own - before->own, int64_t{31} << 20) << touched.back();
}

TEST(EstimateMemory, CountsBothLimbsOfASum) {
  RunConfig config;
  config.model = {.kind = engine::ModelKind::kMlp, .layers = 1, .width = 8};
  const auto model = engine::CreateModel(config.model).value();
  const int64_t array = model->layout().elements * 4;
  for (const bool on_host : {true, false}) {
    config.wide_sums = false;
    const MemoryNeed narrow = EstimateMemory(config, *model, on_host, true);
    config.wide_sums = true;
    const MemoryNeed wide = EstimateMemory(config, *model, on_host, true);
    EXPECT_EQ(wide.gradients - narrow.gradients, array);
    EXPECT_EQ(wide.Total() - narrow.Total(), array);
  }
}

TEST(PredictMemory, EqualsTheEstimateOfTheWholeModel) {
  for (const engine::ModelKind kind :
       {engine::ModelKind::kGpt, engine::ModelKind::kMlp, engine::ModelKind::kCnn}) {
    for (const auto precision : {engine::Precision::kFp32, engine::Precision::kBf16}) {
      RunConfig config;
      config.model = {.kind = kind,
                      .layers = kind == engine::ModelKind::kCnn ? 2 : 5,
                      .heads = 2,
                      .width = 24,
                      .context = 20,
                      .vocabulary = 300,
                      .precision = precision,
                      .max_samples = 7,
                      .threads = 2};
      const auto model = engine::CreateModel(config.model).value();
      const MemoryNeed whole = EstimateMemory(config, *model, true, true);
      const auto predicted = PredictMemory(config, true);
      ASSERT_TRUE(predicted.ok());
      EXPECT_EQ(predicted->weights, whole.weights);
      EXPECT_NEAR(static_cast<double>(predicted->Total()), static_cast<double>(whole.Total()),
                  0.02 * static_cast<double>(whole.Total()))
          << predicted->ToString() << "\n"
          << whole.ToString();
    }
  }
}

TEST(PredictMemory, NeedsNoMemoryForAModelThatDoesNotFit) {
  RunConfig config;
  config.model = {.kind = engine::ModelKind::kGpt,
                  .layers = 1000,
                  .heads = 8,
                  .width = 1024,
                  .context = 128,
                  .vocabulary = 256,
                  .max_samples = 64};
  const auto need = PredictMemory(config, true);
  ASSERT_TRUE(need.ok());
  EXPECT_GT(need->weights, int64_t{1000} * 12 * 1024 * 1024 * 4);
  EXPECT_GT(need->activations, int64_t{1000} * 64 * 128 * 1024 * 4 * 10);
}

TEST(CheckMemory, RefusesWithTheSum) {
  constexpr int64_t kMib = int64_t{1} << 20;
  MemoryNeed need;
  need.weights = 100 * kMib;
  need.activations = 200 * kMib;
  EXPECT_TRUE(CheckMemory(need, 3, {.total = 900 * kMib, .available = 300 * kMib}).ok());
  EXPECT_TRUE(CheckMemory(need, 3, {}).ok()) << "nothing is known";
  const Status sum = CheckMemory(need, 4, {.total = 1000 * kMib});
  ASSERT_FALSE(sum.ok());
  EXPECT_EQ(sum.error().code, Code::kExhausted);
  EXPECT_NE(sum.error().message.find("4 workers x (weights 100.0"), std::string::npos) << sum.error().message;
  EXPECT_NE(sum.error().message.find("= 1200.0 MiB are needed and there are 1000.0 MiB"), std::string::npos)
      << sum.error().message;
  const Status now = CheckMemory(need, 1, {.total = 1000 * kMib, .available = 299 * kMib});
  ASSERT_FALSE(now.ok());
  EXPECT_NE(now.error().message.find("299.0 MiB are available"), std::string::npos) << now.error().message;
}

}  // namespace
}  // namespace ringmaster::trainer
