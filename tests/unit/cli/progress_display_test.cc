// SPDX-License-Identifier: Apache-2.0

#include "cli/run/progress_display.h"

#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

ProgressState State() {
  ProgressState state;
  state.step = 50;
  state.total_steps = 200;
  state.loss = 1.23456;
  state.samples_per_second = 640;
  state.seconds_per_step = 0.1;
  state.workers_alive = 3;
  state.workers_wanted = 4;
  return state;
}

TEST(FormatEta, IsFormattedLikeAClock) {
  EXPECT_EQ(FormatEta(0), "0:00");
  EXPECT_EQ(FormatEta(9.4), "0:09");
  EXPECT_EQ(FormatEta(125), "2:05");
  EXPECT_EQ(FormatEta(3723), "1:02:03");
  EXPECT_EQ(FormatEta(-1), "0:00");
}

TEST(FormatPlain, HasEveryNumber) {
  EXPECT_EQ(FormatPlain(State()), "step 50/200  loss 1.2346  640 samples/s  workers 3/4  ETA 0:15");
}

TEST(FormatPlain, BeforeTheFirstStepThereIsNoLoss) {
  ProgressState state;
  state.total_steps = 10;
  state.workers_wanted = 2;
  state.note = "starting workers";
  EXPECT_EQ(FormatPlain(state), "step 0/10  workers 0/2  starting workers");
}

TEST(FormatPlain, AProgramThatReportsNoStepsHasNone) {
  ProgressState state;
  state.workers_alive = state.workers_wanted = 2;
  EXPECT_EQ(FormatPlain(state), "workers 2/2");
  state.step = 7;
  EXPECT_EQ(FormatPlain(state), "step 7  loss 0.0000  workers 2/2");
}

TEST(ScreenOf, HasEveryNumber) {
  LossHistory losses;
  losses.Add(2.5);
  const LiveScreen screen = ScreenOf(State(), losses);
  EXPECT_EQ(screen.loss, "1.2346");
  EXPECT_EQ(screen.numbers, "640 samples/s  ETA 0:15");
  EXPECT_EQ(screen.losses.size(), 1U);
  EXPECT_EQ(screen.workers_alive, 3);
  EXPECT_EQ(ScreenOf({}, {}).loss, "") << "before the first step";
}

TEST(ParseProgressStyle, AutoDependsOnTheTerminal) {
  EXPECT_EQ(*ParseProgressStyle("auto", true), ProgressStyle::kBar);
  EXPECT_EQ(*ParseProgressStyle("auto", false), ProgressStyle::kPlain);
  EXPECT_EQ(*ParseProgressStyle("json", true), ProgressStyle::kJson);
  EXPECT_FALSE(ParseProgressStyle("fancy", true).ok());
}

TEST(ProgressDisplay, PlainPrintsAtMostALinePerSecond) {
  testing::internal::CaptureStdout();
  ProgressDisplay display(ProgressStyle::kPlain);
  ProgressState state = State();
  const Time start = Now();
  for (int i = 0; i < 100; ++i) {  // 100 steps in 1.98 s
    state.step = i;
    display.Update(state, start + milliseconds(20 * i));
  }
  const std::string during = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(during.begin(), during.end(), '\n'), 2);
}

TEST(ProgressDisplay, JsonPrintsTheMetricsLineWithTheTimeOfReceipt) {
  testing::internal::CaptureStdout();
  ProgressDisplay display(ProgressStyle::kJson);
  rendezvous::StepRecord record;
  record.step = 4;
  display.Step(record, 12.5);
  display.Say("not for scripts");
  display.Finish();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.substr(0, 10), "{\"step\":4,");
  EXPECT_NE(text.find("\"monotonicSeconds\":12.500000}\n"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace ringmaster::cli
