// SPDX-License-Identifier: Apache-2.0

// Every transition of the watch machine; then random histories against its invariants.
#include "operator/kube/watch/watcher.h"

#include <gtest/gtest.h>

namespace ringmaster::kube {
namespace {

using State = Watcher::State;

constexpr Time kStart = Time(seconds(1000));

class WatcherTest : public testing::Test {
 protected:
  template <class C>
  C Expect(Time at) {
    const Watcher::Command command = watcher_.Next(at);
    EXPECT_TRUE(std::holds_alternative<C>(command)) << "got command " << command.index();
    return std::holds_alternative<C>(command) ? std::get<C>(command) : C{};
  }
  void List(Time at, const std::string& version = "100") {
    Expect<Watcher::List>(at);
    EXPECT_EQ(watcher_.OnPage(), StoreEvent::kInitApply);
    EXPECT_EQ(watcher_.OnListed(version, at), StoreEvent::kInitDone);
  }
  void Watching(Time at) {
    List(at);
    Expect<Watcher::Watch>(at);
  }
  // Returns the current delay of the machine; at most the given limit.
  Duration Delay(Time at) {
    const Time until = Expect<Watcher::Wait>(at).until;
    EXPECT_EQ(watcher_.Next(until - milliseconds(1)).index(), Watcher::Command(Watcher::Wait{}).index());
    return until - at;
  }

  Watcher watcher_{Watcher::Options{}};
};

TEST_F(WatcherTest, ListsThenWatchesFromThere) {
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  Expect<Watcher::List>(kStart);
  EXPECT_EQ(watcher_.state(), State::kInitPage);
  EXPECT_EQ(Expect<Watcher::Wait>(kStart).until, kNever);
  EXPECT_EQ(watcher_.OnPage(), StoreEvent::kInitApply);
  EXPECT_EQ(watcher_.OnPage(), StoreEvent::kInitApply);
  EXPECT_EQ(watcher_.OnListed("42", kStart), StoreEvent::kInitDone);
  EXPECT_EQ(watcher_.state(), State::kInitListed);
  const auto watch = Expect<Watcher::Watch>(kStart);
  EXPECT_EQ(watch.resource_version, "42");
  EXPECT_GE(watch.timeout_seconds, 240);
  EXPECT_LE(watch.timeout_seconds, 300);
  EXPECT_EQ(watcher_.state(), State::kWatching);
}

TEST_F(WatcherTest, EventsAdvanceTheResourceVersion) {
  Watching(kStart);
  EXPECT_EQ(watcher_.OnLine(LineKind::kApply, "101", 0, kStart), StoreEvent::kApply);
  EXPECT_EQ(watcher_.OnLine(LineKind::kDelete, "102", 0, kStart), StoreEvent::kDelete);
  EXPECT_EQ(watcher_.OnLine(LineKind::kBookmark, "150", 0, kStart), StoreEvent::kBookmark);
  watcher_.OnEnd(Ok(), kStart + seconds(250));
  EXPECT_EQ(Expect<Watcher::Watch>(kStart + seconds(250)).resource_version, "150");
}

TEST_F(WatcherTest, FailedListIsRetriedAfterADelay) {
  Expect<Watcher::List>(kStart);
  watcher_.OnListFailed({Code::kUnavailable, "connection refused"}, kStart);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  const Duration delay = Delay(kStart);
  EXPECT_GE(delay, milliseconds(400));
  EXPECT_LE(delay, milliseconds(800));
  Expect<Watcher::List>(kStart + delay);
}

TEST_F(WatcherTest, ListThatExpiredBetweenPagesStartsOver) {
  Expect<Watcher::List>(kStart);
  EXPECT_EQ(watcher_.OnPage(), StoreEvent::kInitApply);
  watcher_.OnListFailed({Code::kGone, "continue token expired"}, kStart);
  Expect<Watcher::List>(kStart + seconds(1));
}

TEST_F(WatcherTest, GoneInTheStreamListsAgain) {
  Watching(kStart);
  EXPECT_EQ(watcher_.OnLine(LineKind::kError, "", 410, kStart + seconds(5)), StoreEvent::kNone);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  Expect<Watcher::Cancel>(kStart + seconds(5));
  EXPECT_EQ(watcher_.OnLine(LineKind::kApply, "101", 0, kStart + seconds(5)), StoreEvent::kNone);
  Expect<Watcher::List>(kStart + seconds(6));
}

TEST_F(WatcherTest, GoneAsTheResponseListsAgain) {
  Watching(kStart);
  watcher_.OnEnd(Error{Code::kGone, "too old resource version"}, kStart);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  Expect<Watcher::List>(kStart + seconds(1));
}

TEST_F(WatcherTest, OtherErrorInTheStreamWatchesFromTheLastEvent) {
  Watching(kStart);
  watcher_.OnLine(LineKind::kApply, "107", 0, kStart);
  watcher_.OnLine(LineKind::kError, "", 500, kStart);
  Expect<Watcher::Cancel>(kStart);
  EXPECT_EQ(Expect<Watcher::Watch>(kStart + seconds(1)).resource_version, "107");
}

TEST_F(WatcherTest, BrokenStreamWatchesFromTheLastEvent) {
  Watching(kStart);
  watcher_.OnLine(LineKind::kApply, "107", 0, kStart);
  watcher_.OnEnd(Error{Code::kUnavailable, "reset"}, kStart + seconds(3));
  EXPECT_GT(Delay(kStart + seconds(3)), Duration{0});
  EXPECT_EQ(Expect<Watcher::Watch>(kStart + seconds(4)).resource_version, "107");
}

TEST_F(WatcherTest, UnreadableLineListsAgain) {
  Watching(kStart);
  watcher_.OnUnreadableLine(kStart);
  Expect<Watcher::Cancel>(kStart);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  Expect<Watcher::List>(kStart + seconds(1));
}

TEST_F(WatcherTest, SilentStreamIsCancelled) {
  Watching(kStart);
  EXPECT_EQ(Expect<Watcher::Wait>(kStart).until, kStart + seconds(150));
  watcher_.OnLine(LineKind::kBookmark, "101", 0, kStart + seconds(60));
  EXPECT_EQ(Expect<Watcher::Wait>(kStart + seconds(150)).until, kStart + seconds(210));
  Expect<Watcher::Cancel>(kStart + seconds(210));
  EXPECT_EQ(watcher_.OnLine(LineKind::kApply, "102", 0, kStart + seconds(210)), StoreEvent::kNone);
  EXPECT_EQ(Expect<Watcher::Watch>(kStart + seconds(211)).resource_version, "101");
}

TEST_F(WatcherTest, NormalEndIsFollowedByAWatchAtOnce) {
  Watching(kStart);
  watcher_.OnEnd(Ok(), kStart + seconds(290));
  Expect<Watcher::Watch>(kStart + seconds(290));
}

TEST_F(WatcherTest, WatchThatEndsAtOnceWithoutALineIsAFailure) {
  Watching(kStart);
  watcher_.OnEnd(Ok(), kStart + milliseconds(300));
  EXPECT_GT(Delay(kStart + milliseconds(300)), Duration{0});
}

TEST_F(WatcherTest, ShortWatchWithALineIsNoFailure) {
  Watching(kStart);
  watcher_.OnLine(LineKind::kApply, "101", 0, kStart);
  watcher_.OnEnd(Ok(), kStart + milliseconds(300));
  Expect<Watcher::Watch>(kStart + milliseconds(300));
}

TEST_F(WatcherTest, DelaysDoubleUpToThirtySeconds) {
  Time now = kStart;
  Duration limit = milliseconds(800);
  for (int i = 0; i < 12; ++i) {
    Expect<Watcher::List>(now);
    watcher_.OnListFailed({Code::kUnavailable, "down"}, now);
    const Duration delay = Delay(now);
    EXPECT_LE(delay, limit) << i;
    EXPECT_GE(delay, limit / 2) << i;
    now += delay;
    limit = std::min<Duration>(limit * 2, seconds(30));
  }
  EXPECT_EQ(limit, seconds(30));
}

TEST_F(WatcherTest, TwoMinutesWithoutFailureResetTheDelay) {
  Time now = kStart;
  for (int i = 0; i < 8; ++i) {
    Expect<Watcher::List>(now);
    watcher_.OnListFailed({Code::kUnavailable, "down"}, now);
    now += Delay(now);
  }
  List(now);
  Expect<Watcher::Watch>(now);
  watcher_.OnLine(LineKind::kApply, "101", 0, now);
  watcher_.OnEnd(Error{Code::kUnavailable, "reset"}, now + seconds(60));
  EXPECT_GE(Delay(now + seconds(60)), seconds(15));
  Expect<Watcher::Watch>(now + seconds(90));
  watcher_.OnLine(LineKind::kApply, "102", 0, now + seconds(90));
  watcher_.OnEnd(Error{Code::kUnavailable, "reset"}, now + seconds(181));
  EXPECT_LE(Delay(now + seconds(181)), milliseconds(800));
}

TEST_F(WatcherTest, SeveralIdleWatchesInARowListAgain) {
  Watching(kStart);
  Time now = kStart;
  for (int i = 0; i < 4; ++i) {
    watcher_.OnEnd(Error{Code::kUnavailable, "too large resource version"}, now);
    EXPECT_EQ(watcher_.state(), State::kInitListed);
    now += Delay(now);
    Expect<Watcher::Watch>(now);
  }
  watcher_.OnEnd(Error{Code::kUnavailable, "too large resource version"}, now);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
}

TEST_F(WatcherTest, LateReportsAreIgnored) {
  EXPECT_EQ(watcher_.OnPage(), StoreEvent::kNone);
  EXPECT_EQ(watcher_.OnListed("9", kStart), StoreEvent::kNone);
  watcher_.OnListFailed({Code::kUnavailable, ""}, kStart);
  watcher_.OnEnd(Ok(), kStart);
  watcher_.OnUnreadableLine(kStart);
  EXPECT_EQ(watcher_.OnLine(LineKind::kError, "", 410, kStart), StoreEvent::kNone);
  EXPECT_EQ(watcher_.state(), State::kEmpty);
  Expect<Watcher::List>(kStart);
}

// Random outcomes for a long time. At most one request is in flight, every failure is followed by a delay,
// and a watch begins where the last one ended.
TEST(WatcherRandom, KeepsItsInvariants) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 rng(seed);
    Watcher::Options options;
    options.seed = seed;
    Watcher watcher(options);
    Time now = kStart;
    uint64_t version = 1;
    std::string seen;
    bool listing = false;
    bool watching = false;
    Time failed = Time::min();  // time of a failure that no request has followed yet
    for (int step = 0; step < 400; ++step) {
      now += milliseconds(static_cast<int64_t>(rng.Below(40'000)));
      const Watcher::Command command = watcher.Next(now);
      if (std::holds_alternative<Watcher::List>(command)) {
        ASSERT_FALSE(listing || watching);
        listing = true;
      } else if (const auto* watch = std::get_if<Watcher::Watch>(&command)) {
        ASSERT_FALSE(listing || watching);
        ASSERT_EQ(watch->resource_version, seen);
        watching = true;
      } else if (std::holds_alternative<Watcher::Cancel>(command)) {
        ASSERT_TRUE(watching);
        watching = false;
      } else {
        ASSERT_GT(std::get<Watcher::Wait>(command).until, now);
      }
      if ((std::holds_alternative<Watcher::List>(command) ||
           std::holds_alternative<Watcher::Watch>(command)) &&
          failed != Time::min()) {
        ASSERT_GE(now - failed, milliseconds(400));
        failed = Time::min();
      }
      if (listing) {
        switch (rng.Below(4)) {
          case 0:
            watcher.OnListFailed({Code::kUnavailable, ""}, now);
            failed = now;
            listing = false;
            break;
          case 1:
            ASSERT_EQ(watcher.OnPage(), StoreEvent::kInitApply);
            break;
          default:
            seen = std::to_string(++version);
            ASSERT_EQ(watcher.OnListed(seen, now), StoreEvent::kInitDone);
            listing = false;
        }
      } else if (watching) {
        switch (rng.Below(6)) {
          case 0:
            watcher.OnEnd(Error{rng.Chance(0.3) ? Code::kGone : Code::kUnavailable, ""}, now);
            failed = now;
            watching = false;
            break;
          case 1:
            watcher.OnEnd(Ok(), now + seconds(1));
            watching = false;
            break;
          case 2:
            watcher.OnLine(LineKind::kError, "", rng.Chance(0.5) ? 410 : 500, now);
            failed = now;
            break;
          default:
            seen = std::to_string(++version);
            ASSERT_EQ(watcher.OnLine(LineKind::kApply, seen, 0, now), StoreEvent::kApply);
        }
        if (failed == now && watching) {  // the stream must be cancelled first
          ASSERT_TRUE(std::holds_alternative<Watcher::Cancel>(watcher.Next(now)));
          watching = false;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringmaster::kube
