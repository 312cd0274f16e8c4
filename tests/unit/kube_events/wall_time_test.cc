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

}  // namespace
}  // namespace ringmaster::kube
