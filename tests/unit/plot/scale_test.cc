// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/plot/runs.h"

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;

TEST(Ticks, AreRoundAndInside) {
  EXPECT_THAT(TicksOf(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(TicksOf(1, 4, 3), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(LogTicksOf(0.5, 20), ElementsAre(0.5, 1, 2, 5, 10, 20));
  for (const double tick : TicksOf(-1e-9, 3e-9, 6)) EXPECT_LE(std::abs(tick), 3.1e-9);
}

TEST(Labels, AreShort) {
  EXPECT_EQ(TickLabel(1'000'000), "1,000,000");
  EXPECT_EQ(TickLabel(-1234), "-1,234");
  EXPECT_EQ(TickLabel(999), "999");
  EXPECT_EQ(TickLabel(0.5), "0.5");
  EXPECT_EQ(TickLabel(2e-5), "2e-05");
  EXPECT_EQ(TimeLabel(0.0092), "9.2 ms");
  EXPECT_EQ(TimeLabel(0.024), "24 ms");
  EXPECT_EQ(TimeLabel(1.44), "1.4 s");
  EXPECT_EQ(TimeLabel(125), "2m05s");
  EXPECT_EQ(TimeLabel(7260), "2h01m");
}

TEST(Downsample, KeepsTheExtremesOfAColumn) {
  RecordedRun run = RunOf("long", 100'000);
  run.steps[54'321].loss = 99;
  const auto columns = Downsample(run.steps, 1, 100'000, 500);
  EXPECT_EQ(columns.size(), 500U);
  double highest = 0;
  for (const Column& column : columns) highest = std::max(highest, column.high);
  EXPECT_EQ(highest, 99);
  EXPECT_EQ(columns.front().first, run.steps.front().loss);
  EXPECT_EQ(columns.back().last, run.steps.back().loss);
}

TEST(LossRange, IsNeverEmpty) {
  const RecordedRun one = RunOf("one", 1), none = RunOf("none", 0);
  EXPECT_LT(LossRange({&one.steps}).low, LossRange({&one.steps}).high);
  EXPECT_LT(LossRange({&none.steps}).low, LossRange({&none.steps}).high);
}

}  // namespace
}  // namespace ringmaster::cli
