// SPDX-License-Identifier: Apache-2.0

#include "api/display.h"

#include <gtest/gtest.h>

namespace ringmaster::api {
namespace {

std::string Percent(int64_t step, int64_t total) {
  Status status;
  status.progress.step = step;
  status.progress.totalSteps = total;
  FillDisplay(status);
  return status.progress.percent;
}

TEST(Display, DurationsHaveTwoUnits) {
  EXPECT_EQ(ShortDuration(0), "0s");
  EXPECT_EQ(ShortDuration(59), "59s");
  EXPECT_EQ(ShortDuration(60), "1m00s");
  EXPECT_EQ(ShortDuration(3599), "59m59s");
  EXPECT_EQ(ShortDuration(3600), "1h00m");
  EXPECT_EQ(ShortDuration(86'399), "23h59m");
  EXPECT_EQ(ShortDuration(86'400), "1d00h");
  EXPECT_EQ(ShortDuration(10 * 86'400 + 7200), "10d02h");
}

TEST(Display, OnlyAFinishedJobIsAtAHundredPercent) {
  EXPECT_EQ(Percent(0, 0), "");
  EXPECT_EQ(Percent(0, 1000), "0%");
  EXPECT_EQ(Percent(419, 1000), "41%");
  EXPECT_EQ(Percent(999, 1000), "99%");
  EXPECT_EQ(Percent(1000, 1000), "100%");
  EXPECT_EQ(Percent(9'007'199'254'740'990, 9'007'199'254'740'991), "99%");
}

TEST(Display, UnknownValuesAreEmpty) {
  Status status;
  FillDisplay(status);
  EXPECT_EQ(status, Status());
  status.replicas = 8;
  status.readyReplicas = 7;
  status.progress.etaSeconds = 3900;
  FillDisplay(status);
  EXPECT_EQ(status.ready, "7/8");
  EXPECT_EQ(status.progress.eta, "1h05m");
}

}  // namespace
}  // namespace ringmaster::api
