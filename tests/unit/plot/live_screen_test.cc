// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/live_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using State = LiveScreen::Worker::State;

LiveScreen Busy(int workers) {
  LiveScreen screen;
  screen.title = "gpt-text";
  screen.step = 50;
  screen.total_steps = 200;
  screen.numbers = "640 samples/s  ETA 0:15";
  screen.loss = "1.9107";
  for (int i = 0; i < 100; ++i) screen.losses.push_back(5.0 / (1 + i));
  screen.workers_alive = workers - 1;
  screen.workers_wanted = workers;
  for (int i = 0; i < workers; ++i)
    screen.workers.push_back({"gpt-text-1-" + std::to_string(i),
                              i == workers - 1 ? State::kFailed : State::kMember,
                              "rank " + std::to_string(i)});
  return screen;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(DrawScreen, HasProgressLossAndALinePerWorker) {
  const auto lines = DrawScreen(Busy(4), {100, 24, false, true}, 22);
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "gpt-text  3 of 4 workers");
  EXPECT_THAT(lines[1], HasSubstr(" 25 %  step 50 of 200  640 samples/s  ETA 0:15"));
  EXPECT_THAT(lines[1], HasSubstr("██████████ "));
  EXPECT_THAT(lines[2], HasSubstr("loss 1.9107  █"));
  EXPECT_EQ(lines[3], "  ● gpt-text-1-0  rank 0");
  EXPECT_EQ(lines[6], "  ✖ gpt-text-1-3  rank 3");
}

TEST(DrawScreen, MarksASlowWorker) {
  LiveScreen screen = Busy(4);
  screen.workers[1].state = State::kSlow;
  EXPECT_EQ(DrawScreen(screen, {100, 24, false, true}, 22)[4], "  ◐ gpt-text-1-1  rank 1");
  EXPECT_EQ(DrawScreen(screen, {100, 24, false, false}, 22)[4], "  ~ gpt-text-1-1  rank 1");
  EXPECT_THAT(Joined(DrawScreen(screen, {100, 24, false, true}, 6)), HasSubstr("1-1")) << "it comes first";
}

TEST(DrawScreen, FitsEveryTerminal) {
  for (const bool unicode : {false, true}) {
    for (int width = 1; width < 130; width += 3) {
      for (int rows = 1; rows < 20; ++rows) {
        const auto lines = DrawScreen(Busy(9), {width, rows, true, unicode}, rows);
        EXPECT_LE(lines.size(), static_cast<size_t>(rows));
        for (const std::string& line : lines) EXPECT_LE(ColumnsOf(line), std::max(1, width - 1)) << line;
      }
    }
  }
}

TEST(DrawScreen, HasNoEscapesWithoutColourAndOnlyAsciiWithoutUnicode) {
  for (const char c : Joined(DrawScreen(Busy(4), {100, 24, false, false}, 22)))
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  EXPECT_THAT(Joined(DrawScreen(Busy(4), {100, 24, true, true}, 22)), HasSubstr("\x1b[33m"))
      << "one is missing";
}

TEST(DrawScreen, WorkersWithAProblemAreShownWhenNotAllFit) {
  const std::string text = Joined(DrawScreen(Busy(40), {100, 10, false, true}, 8));
  EXPECT_THAT(text, HasSubstr("✖ gpt-text-1-39"));
  EXPECT_THAT(text, HasSubstr("and 36 more workers"));
}

TEST(DrawScreen, BeforeTheFirstStepThereIsNoLoss) {
  LiveScreen screen;
  screen.title = "job";
  screen.note = "waiting for workers";
  const std::string text = Joined(DrawScreen(screen, {80, 24, false, true}, 22));
  EXPECT_THAT(text, HasSubstr("waiting for workers"));
  EXPECT_THAT(text, Not(HasSubstr("loss")));
}

TEST(LossHistory, StaysShortAndKeepsItsBeginning) {
  LossHistory history;
  for (int i = 0; i < 1'000'000; ++i) history.Add(i < 500'000 ? 5 : 1);
  EXPECT_LE(history.values().size(), 512U);
  EXPECT_GE(history.values().size(), 128U);
  EXPECT_EQ(history.values().front(), 5);
  EXPECT_EQ(history.values().back(), 1);
}

}  // namespace
}  // namespace ringmaster::cli
