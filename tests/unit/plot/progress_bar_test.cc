// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/progress_bar.h"

#include <gtest/gtest.h>

#include "cli/plot/terminal.h"

namespace ringmaster::cli {
namespace {

TEST(ProgressBarText, HasTitleBarShareAndTime) {
  EXPECT_EQ(ProgressBarText("reading", 50, seconds(72), 80),
            "reading [###############...............]  50 %  1:12");
  EXPECT_EQ(ProgressBarText("reading", -1, seconds(72), 80), "reading  1:12") << "the total is not known";
  EXPECT_EQ(ProgressBarText("reading", 7, seconds(3), 25), "reading    7 %  0:03") << "no room for a bar";
  for (int columns = 1; columns < 100; ++columns)
    for (const int percent : {-1, 0, 99, 100})
      EXPECT_LE(ColumnsOf(ProgressBarText("reading", percent, seconds(3), columns)), columns);
}

TEST(WorkCounter, CountsFromEachBegin) {
  WorkCounter counter;
  EXPECT_EQ(counter.Percent(), -1);
  counter.Begin(10);
  EXPECT_EQ(counter.Percent(), 0);
  counter.Add(4);
  EXPECT_EQ(counter.Percent(), 40);
  counter.Add(40);
  EXPECT_EQ(counter.Percent(), 100) << "more than announced";
  counter.Begin(4);
  EXPECT_EQ(counter.Percent(), 0);
}

TEST(ProgressBar, ShowsNothingForAShortOperation) {
  testing::internal::CaptureStderr();
  { ProgressBar bar("reading"); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace ringmaster::cli
