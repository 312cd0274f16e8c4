// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>

#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {
namespace {

Schedule Make(ScheduleKind kind, int64_t warmup, int64_t total, double final_rate = 0.1) {
  return {.kind = kind, .base = 1, .final = final_rate, .warmup_steps = warmup, .total_steps = total};
}

TEST(Schedule, WarmsUpLinearly) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    const Schedule s = Make(kind, 10, 100);
    EXPECT_EQ(s.At(1), 0.1);
    EXPECT_EQ(s.At(5), 0.5);
    EXPECT_EQ(s.At(10), 1.0);
  }
}

TEST(Schedule, ConstantStays) {
  EXPECT_EQ(Make(ScheduleKind::kConstant, 0, 10).At(1), 1);
  EXPECT_EQ(Make(ScheduleKind::kConstant, 0, 10).At(1000000), 1);
}

TEST(Schedule, LinearAndCosineReachTheFinalRateAfterTheLastStep) {
  const Schedule linear = Make(ScheduleKind::kLinear, 10, 109);
  EXPECT_DOUBLE_EQ(linear.At(60), 0.55);
  EXPECT_DOUBLE_EQ(linear.At(109), 0.1 + 0.9 / 100);
  EXPECT_EQ(linear.At(110), 0.1);
  EXPECT_EQ(linear.At(500), 0.1);
  const Schedule cosine = Make(ScheduleKind::kCosine, 10, 109);
  EXPECT_DOUBLE_EQ(cosine.At(60), 0.55);
  EXPECT_DOUBLE_EQ(cosine.At(35), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_EQ(cosine.At(110), 0.1);
}

// As torch's LinearLR, and the schedules of transformers: the first of n steps has the full rate, the last
// one 1/n of it.
TEST(Schedule, EveryStepTrains) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    for (const int64_t steps : {1, 2, 7, 1000}) {
      const Schedule s = Make(kind, 0, steps, 0);
      EXPECT_EQ(s.At(1), 1) << steps;
      EXPECT_GT(s.At(steps), 0) << steps;
    }
  }
  EXPECT_DOUBLE_EQ(Make(ScheduleKind::kLinear, 0, 8, 0).At(8), 1.0 / 8);
}

TEST(Schedule, NeverRisesAfterTheWarmUp) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    const Schedule s = Make(kind, 7, 1003, 0);
    for (int64_t step = 8; step <= 1003; ++step) ASSERT_LT(s.At(step), s.At(step - 1)) << step;
    EXPECT_EQ(s.At(1004), 0);
  }
}

TEST(Schedule, WarmUpAsLongAsTraining) {
  const Schedule s = Make(ScheduleKind::kCosine, 10, 10);
  EXPECT_EQ(s.At(10), 1);
  EXPECT_EQ(s.At(11), 0.1);
}

}  // namespace
}  // namespace ringmaster::optimizer
