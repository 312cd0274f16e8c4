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

}  // namespace
}  // namespace ringmaster::trainer
