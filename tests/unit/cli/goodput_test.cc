// SPDX-License-Identifier: Apache-2.0

#include "cli/run/goodput.h"

#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

rendezvous::StepRecord StepTaking(double seconds, int64_t samples = 10) {
  rendezvous::StepRecord record;
  record.seconds = seconds;
  record.samples = samples;
  return record;
}

TEST(Goodput, IsOneForEvenSteps) {
  Goodput goodput;
  for (int i = 1; i <= 10; ++i) goodput.Add(StepTaking(0.5), 100 + 0.5 * i);
  EXPECT_DOUBLE_EQ(goodput.Ratio(), 1.0);
  EXPECT_DOUBLE_EQ(goodput.SamplesPerSecond(), 20.0);
  EXPECT_DOUBLE_EQ(goodput.RecentSamplesPerSecond(), 20.0);
  EXPECT_DOUBLE_EQ(goodput.MedianSeconds(), 0.5);
}

TEST(Goodput, AStepWithARecoveryCountsAsTwiceTheMedian) {
  Goodput goodput;
  double now = 0;
  for (const double seconds : {1.0, 1.0, 1.0, 7.0, 1.0}) goodput.Add(StepTaking(seconds), now += seconds);
  EXPECT_DOUBLE_EQ(goodput.Ratio(), 6.0 / 11.0);
}

TEST(Goodput, TimeBetweenStepsIsLost) {
  Goodput goodput;
  goodput.Add(StepTaking(1), 1);
  goodput.Add(StepTaking(1), 2);
  goodput.Add(StepTaking(1), 10);  // all workers were gone for seven seconds
  EXPECT_DOUBLE_EQ(goodput.Ratio(), 0.3);
}

TEST(Goodput, IsZeroWithoutSteps) {
  const Goodput goodput;
  EXPECT_EQ(goodput.Ratio(), 0);
  EXPECT_EQ(goodput.SamplesPerSecond(), 0);
  EXPECT_EQ(goodput.RecentSecondsPerStep(), 0);
  EXPECT_EQ(goodput.RecentSamplesPerSecond(), 0);
}

TEST(Goodput, StepsReceivedInOneBatchDoNotExceedOne) {
  Goodput goodput;
  for (int i = 0; i < 10; ++i) goodput.Add(StepTaking(0.5), 5.0);
  EXPECT_DOUBLE_EQ(goodput.Ratio(), 1.0);
}

}  // namespace
}  // namespace ringmaster::cli
