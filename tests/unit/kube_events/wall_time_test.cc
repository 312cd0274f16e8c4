// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/wall_time.h"

#include <gtest/gtest.h>

namespace ringmaster::kube {
namespace {

TEST(WallTime, RoundTrip) {
  for (int64_t micros :
       {0L, 1L, 999'999L, 1'795'254'300'123'456L, 1'709'164'799'999'999L, 253'402'300'799'000'000L}) {
    const WallTime time{std::chrono::microseconds(micros)};
    const auto back = ParseWallTime(WallTimeText(time));
    ASSERT_TRUE(back.ok()) << WallTimeText(time);
    EXPECT_EQ(back.value(), time);
    EXPECT_EQ(ParseWallTime(WallSecondsText(time)).value(), std::chrono::floor<std::chrono::seconds>(time));
  }
  EXPECT_EQ(WallTimeText(WallTime(std::chrono::microseconds(1'709'164'799'000'001))),
            "2024-02-28T23:59:59.000001Z");
}

TEST(WallTime, OtherFormsOfTheSameTime) {
  const auto time = ParseWallTime("2026-11-21T09:05:00Z").value();
  EXPECT_EQ(ParseWallTime("2026-11-21T09:05:00.000000000Z").value(), time);
  EXPECT_EQ(ParseWallTime("2026-11-21T10:05:00+01:00").value(), time);
  EXPECT_EQ(ParseWallTime("2026-11-21T04:35:00-04:30").value(), time);
  EXPECT_EQ(ParseWallTime("2026-11-21T09:05:00.5Z").value(), time + std::chrono::milliseconds(500));
}

TEST(WallTime, RejectsInvalidTimes) {
  for (const char* text :
       {"", "2026-11-21", "2026-11-21T09:05:00", "2026-13-21T09:05:00Z", "2026-02-30T09:05:00Z",
        "2026-11-21T24:05:00Z", "2026-11-21T09:05:00.Z", "2026-11-21T09:05:00Zx", "-026-11-21T09:05:00Z",
        "2026-11-21T09:05:00+0100", "2026-11-21 09:05:00Z"})
    EXPECT_FALSE(ParseWallTime(text).ok()) << text;
}

TEST(WallClock, OffsetIsConstant) {
  const WallClock clock(Time{} + seconds(100), WallTime(std::chrono::seconds(5000)));
  EXPECT_EQ(clock.ToWall(Time{} + seconds(130)), WallTime(std::chrono::seconds(5030)));
  EXPECT_EQ(clock.ToSteady(clock.ToWall(Time{} + milliseconds(42))), Time{} + milliseconds(42));
}

TEST(WallClock, TheServersClockCorrectsIt) {
  // It was started with the time of its machine's first boot.
  const WallClock clock(Time{} + seconds(100), WallTime(std::chrono::seconds(0)));
  const WallClock copy = clock;
  const WallTime server = *ParseHttpDate("Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(WallSecondsText(server), "1994-11-06T08:49:37Z");
  EXPECT_TRUE(clock.Correct(server, Time{} + seconds(130)));
  EXPECT_EQ(WallSecondsText(copy.ToWall(Time{} + seconds(131))), "1994-11-06T08:49:38Z");
  EXPECT_EQ(copy.ToSteady(copy.ToWall(Time{} + seconds(7))), Time{} + seconds(7));
  const WallTime before = clock.ToWall(Time{});
  for (const int difference : {-4, 0, 4})
    EXPECT_FALSE(clock.Correct(server + std::chrono::seconds(difference + 10), Time{} + seconds(140)));
  EXPECT_EQ(clock.ToWall(Time{}), before) << "small differences are of the network";
  EXPECT_TRUE(clock.Correct(server - std::chrono::hours(24), Time{} + seconds(130)));
  EXPECT_EQ(WallSecondsText(clock.ToWall(Time{} + seconds(130))), "1994-11-05T08:49:37Z");
}

TEST(WallTime, RejectsInvalidDatesOfHttp) {
  for (const char* text : {"", "Sun", "Sun, ", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC",
                           "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
                           "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 ovD 1994 08:49:37 GMT",
                           "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 No", "Sun, 06 Nov 1994 08:49:37 GMTx"})
    EXPECT_FALSE(ParseHttpDate(text).has_value()) << text;
}

}  // namespace
}  // namespace ringmaster::kube
