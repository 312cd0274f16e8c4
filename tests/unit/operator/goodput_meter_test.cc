// SPDX-License-Identifier: Apache-2.0

#include "operator/core/goodput_meter.h"

#include <gtest/gtest.h>

namespace ringmaster::core {
namespace {

Time At(double when) {
  return Time{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(when));
}

// Reports each fifth of a second, as a gang that makes 20 samples in it.
void Train(GoodputMeter& meter, double from, double to, int64_t& kept) {
  for (int i = 1; from + 0.2 * i <= to + 1e-6; ++i) meter.Add(kept += 20, At(from + 0.2 * i));
}

TEST(GoodputMeter, CountsFromTheFirstKeptStep) {
  GoodputMeter meter;
  meter.Add(0, At(100));
  EXPECT_FALSE(meter.SamplesPerSecond(At(200)));
  int64_t kept = 0;
  Train(meter, 200, 209, kept);
  EXPECT_FALSE(meter.SamplesPerSecond(At(209))) << "too short";
  Train(meter, 209, 220, kept);
  EXPECT_NEAR(meter.SamplesPerSecond(At(220)).value(), 100, 0.5);
  Train(meter, 220, 500, kept);
  EXPECT_NEAR(meter.SamplesPerSecond(At(500)).value(), 100, 2);
}

TEST(GoodputMeter, PausesAndRepeatedStepsAreTimeWithoutSamples) {
  GoodputMeter meter;
  int64_t kept = 0;
  Train(meter, 0, 100, kept);
  // No report comes.
  EXPECT_NEAR(meter.SamplesPerSecond(At(115)).value(), 75, 2);
  // Reports come, of steps that were done before: a quarter of the minute, after another one.
  for (double now = 115; now < 130; now += 0.2) meter.Add(kept, At(now));
  EXPECT_NEAR(meter.SamplesPerSecond(At(130)).value(), 50, 2);
  Train(meter, 130, 145, kept);
  EXPECT_NEAR(meter.SamplesPerSecond(At(145)).value(), 50, 2);
  Train(meter, 145, 190, kept);
  EXPECT_NEAR(meter.SamplesPerSecond(At(190)).value(), 100, 2);
  EXPECT_EQ(meter.SamplesPerSecond(At(251)).value(), 0);
}

TEST(GoodputMeter, AnotherCoordinatorStartsAgain) {
  GoodputMeter meter;
  int64_t kept = 0;
  Train(meter, 0, 100, kept);
  kept = 0;
  Train(meter, 100, 105, kept);
  EXPECT_FALSE(meter.SamplesPerSecond(At(105)));
  Train(meter, 105, 120, kept);
  EXPECT_NEAR(meter.SamplesPerSecond(At(120)).value(), 100, 0.5);
  meter.Reset();
  EXPECT_FALSE(meter.SamplesPerSecond(At(200)));
}

}  // namespace
}  // namespace ringmaster::core
