// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/rng.h"
#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

using Acts = std::vector<Act>;
const Limits kLimits = {seconds(10), seconds(20), milliseconds(500), seconds(2)};
const Abilities kAll = {true, true};
const Abilities kNone = {false, false};
const Time kStart = Time(seconds(1000));

class WatchdogTest : public ::testing::Test {
 protected:
  Watchdog Running(const Abilities& abilities) {
    Watchdog watchdog = StartWatchdog(kLimits, abilities, kStart);
    EXPECT_EQ(Decide(&watchdog, Formed{}, kStart), Acts{});
    return watchdog;
  }
};

TEST_F(WatchdogTest, AGenerationThatLosesAMemberIsParkedForASmallerOne) {
  Watchdog watchdog = Running(kAll);
  EXPECT_EQ(Decide(&watchdog, WaitBegan{}, kStart), Acts{});
  EXPECT_EQ(Decide(&watchdog, Failed{kRemoteError, "reset by peer"}, kStart),
            (Acts{Act::kFail, Act::kRevoke}));
  EXPECT_EQ(watchdog.failure->code, Code::kUnavailable);
  EXPECT_EQ(Decide(&watchdog, Ordered{}, kStart), Acts{}) << "told before";
  EXPECT_EQ(Decide(&watchdog, Quiet{}, kStart), Acts{}) << "the call has not returned";
  EXPECT_EQ(watchdog.phase, Phase::kRevoking);
  EXPECT_EQ(Decide(&watchdog, CallReturned{true}, kStart), Acts{});
  EXPECT_EQ(Decide(&watchdog, Quiet{}, kStart), Acts{});
  EXPECT_EQ(watchdog.phase, Phase::kParked);
  EXPECT_TRUE(watchdog.revoked);
  EXPECT_EQ(watchdog.due, kNever);
  EXPECT_EQ(Decide(&watchdog, Disposed{}, kStart), Acts{Act::kAbort});
  EXPECT_EQ(Decide(&watchdog, CallReturned{true}, kStart), Acts{});
  EXPECT_EQ(watchdog.phase, Phase::kGone);
}

TEST_F(WatchdogTest, AnOlderLibraryIsAborted) {
  for (const Abilities& abilities : {kNone, Abilities{true, false}, Abilities{false, true}}) {
    Watchdog watchdog = Running(abilities);
    EXPECT_EQ(Decide(&watchdog, Ordered{}, kStart), (Acts{Act::kFail, Act::kAbort}));
    EXPECT_EQ(watchdog.failure->code, Code::kCancelled);
  }
}

TEST_F(WatchdogTest, ARevokeThatFailsBecomesAnAbortWithinTheSameDeadline) {
  Watchdog watchdog = Running(kAll);
  (void)Decide(&watchdog, Ordered{}, kStart);
  const Time due = watchdog.due;
  EXPECT_EQ(Decide(&watchdog, CallReturned{false}, kStart + milliseconds(300)), Acts{Act::kAbort});
  EXPECT_EQ(watchdog.due, due);
  EXPECT_EQ(Decide(&watchdog, Tick{}, due - milliseconds(1)), Acts{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, due), Acts{Act::kLeave});
  EXPECT_NE(LeaveReason(watchdog).find("within 500 ms"), std::string::npos) << LeaveReason(watchdog);
}

// Slow is not hanging: with no work on the GPU there is time to join threads and give memory back.
TEST_F(WatchdogTest, FreeingWhatIsIdleMayTakeLonger) {
  Watchdog parked = Running(kAll);
  (void)Decide(&parked, Released{}, kStart);
  Watchdog forming = StartWatchdog(kLimits, kAll, kStart);
  Watchdog released = Running(kNone);
  const std::pair<Watchdog*, Event> all[] = {
      {&parked, Disposed{}}, {&forming, Ordered{}}, {&released, Released{}}};
  for (const auto& [watchdog, event] : all) {
    (void)Decide(watchdog, event, kStart);
    EXPECT_EQ(watchdog->phase, Phase::kAborting);
    EXPECT_EQ(Decide(watchdog, Tick{}, kStart + milliseconds(1999)), Acts{});
    EXPECT_EQ(Decide(watchdog, Tick{}, kStart + seconds(2)), Acts{Act::kLeave});
    EXPECT_TRUE(LeaveReason(*watchdog).starts_with("NCCL did not free a communicator within 2 s"))
        << LeaveReason(*watchdog);
  }
}

TEST_F(WatchdogTest, AnAbortThatFailsLeavesAtOnce) {
  Watchdog watchdog = Running(kNone);
  (void)Decide(&watchdog, Ordered{}, kStart);
  EXPECT_EQ(Decide(&watchdog, CallReturned{false}, kStart), Acts{Act::kLeave});
}

TEST_F(WatchdogTest, RanksThatNeverCome) {
  Watchdog watchdog = StartWatchdog(kLimits, kAll, kStart);
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(10)), (Acts{Act::kFail, Act::kAbort}))
      << "nothing to keep before it has formed";
  EXPECT_EQ(watchdog.failure->code, Code::kDeadlineExceeded);
  EXPECT_NE(watchdog.failure->message.find("10 s"), std::string::npos);
}

TEST_F(WatchdogTest, AnOperationThatDoesNotEnd) {
  Watchdog watchdog = Running(kNone);
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(100)), Acts{}) << "nobody waits";
  (void)Decide(&watchdog, WaitBegan{}, kStart + seconds(100));
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(119)), Acts{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(120)), (Acts{Act::kFail, Act::kAbort}));
  EXPECT_EQ(watchdog.failure->code, Code::kDeadlineExceeded);
}

TEST_F(WatchdogTest, ProgressOfOneWaitIsProgressForAll) {
  Watchdog watchdog = Running(kNone);
  (void)Decide(&watchdog, WaitBegan{}, kStart);
  (void)Decide(&watchdog, WaitBegan{}, kStart + seconds(5));
  (void)Decide(&watchdog, WaitEnded{}, kStart + seconds(19));
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(38)), Acts{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(39)), (Acts{Act::kFail, Act::kAbort}));
}

TEST_F(WatchdogTest, WhatIsReleasedWellIsKeptWhereItCanShrink) {
  Watchdog kept = Running(Abilities{false, true});
  EXPECT_EQ(Decide(&kept, Released{}, kStart), Acts{Act::kFail});
  EXPECT_EQ(kept.phase, Phase::kParked);
  EXPECT_FALSE(kept.revoked);
  Watchdog freed = Running(kNone);
  EXPECT_EQ(Decide(&freed, Released{}, kStart), (Acts{Act::kFail, Act::kAbort}));
}

TEST_F(WatchdogTest, AGpuThatFailsIsGone) {
  Watchdog watchdog = Running(kAll);
  (void)Decide(&watchdog, Failed{kUnhandledCudaError, "an illegal memory access"}, kStart);
  EXPECT_EQ(watchdog.failure->code, Code::kGone);
}

// ---- the simulation: a library with moods, against what watchdog.h promises

using DecideFunction = std::function<Acts(Watchdog*, const Event&, Time)>;

// The first broken promise, or nothing.
std::string Simulate(uint64_t seed, const DecideFunction& decide) {
  SplitMix64 random(seed);
  const Abilities abilities = {random.Chance(0.6), random.Chance(0.7)};
  const bool revoke_works = random.Chance(0.7);
  const bool falls_quiet = random.Chance(0.8);
  const bool abort_works = random.Chance(0.9);
  const bool waits_end = random.Chance(0.7);
  const bool calm = random.Chance(0.3);  // nothing happens but waiting
  const bool calls_return = random.Chance(0.85);
  Watchdog watchdog = StartWatchdog(kLimits, abilities, kStart);
  Time now = kStart;
  Time return_at = kNever;  // of the call under way
  bool aborting = false;
  bool revoked = false;
  bool freed = false;
  int waits = 0;
  int failures = 0;
  int revokes = 0;
  Time stopping_since = kNever;
  Duration stopping_limit = kLimits.quiet;
  Time waiting_since = kNever;
  std::string broken;
  const auto feed = [&](const Event& event) {
    const Phase before = watchdog.phase;
    for (const Act act : decide(&watchdog, event, now)) {
      if (before == Phase::kGone || before == Phase::kLeaving) broken = "W4: acts after the end";
      if (act == Act::kFail) {
        if (++failures > 1) broken = "W1: a second failure";
        if (!watchdog.failure) broken = "W1: a failure without an error";
        waits = 0;
        waiting_since = kNever;
      } else if (act == Act::kLeave) {
        if (watchdog.phase != Phase::kLeaving) broken = "W3: leaves, but does not know";
      } else {
        if (return_at != kNever) broken = "W2: two calls at a time";
        if (freed) broken = "W4: a call after it was freed";
        aborting = act == Act::kAbort;
        if (!aborting && ++revokes > 1) broken = "W5: revoked twice";
        if (!aborting && !abilities.revoke) broken = "the library cannot revoke";
        if (stopping_since == kNever) {
          stopping_since = now;
          const bool idle = before == Phase::kForming || before == Phase::kParked ||
                            std::holds_alternative<Released>(event);
          stopping_limit = idle ? kLimits.freeing : kLimits.quiet;
        }
        const Duration takes = milliseconds(static_cast<int64_t>(random.Below(400)));
        return_at = calls_return ? now + takes : now + seconds(3600);
      }
    }
    const Phase after = watchdog.phase;
    // The GPU's work is over; what is disposed of at once has a deadline of its own.
    if (std::holds_alternative<Quiet>(event) && after == Phase::kAborting) {
      stopping_since = now;
      stopping_limit = kLimits.freeing;
    }
    if (after == Phase::kParked) {
      if (!abilities.shrink) broken = "W4: parked, and the library cannot shrink";
      if (return_at != kNever) broken = "W4: parked during a call";
      if (before == Phase::kRevoking && !(revoked && falls_quiet)) broken = "W4: parked while work goes on";
    }
    if (after == Phase::kParked || after == Phase::kGone || after == Phase::kLeaving) stopping_since = kNever;
    if (after == Phase::kGone && !freed) broken = "gone, but not freed";
  };
  for (int i = 0; i < 400 && broken.empty(); ++i) {
    now += milliseconds(static_cast<int64_t>(random.Below(random.Chance(0.02) ? 8000 : 60)));
    // The shell ticks at the deadline it was told.
    const Time deadline = std::min({watchdog.due, return_at});
    if (deadline < now) now = deadline;
    if (return_at <= now) {
      return_at = kNever;
      const bool ok = aborting ? abort_works : revoke_works;
      if (aborting && ok) freed = true;
      if (!aborting && ok) revoked = true;
      feed(CallReturned{ok});
    }
    if (broken.empty() && watchdog.due <= now) feed(Tick{});
    switch (random.Below(10)) {
      case 0:
        if (watchdog.phase == Phase::kForming) feed(Formed{});
        break;
      case 1:
        if (watchdog.phase == Phase::kRunning && waits++ == 0) waiting_since = now;
        feed(WaitBegan{});
        break;
      case 2:
        if (waits_end && watchdog.phase == Phase::kRunning && waits > 0) {
          waiting_since = --waits > 0 ? now : kNever;
          feed(WaitEnded{});
        }
        break;
      case 3:
        if (!calm && random.Chance(0.05))
          feed(Failed{random.Chance(0.5) ? kRemoteError : kUnhandledCudaError, "x"});
        break;
      case 4:
        if (!calm && random.Chance(0.1)) feed(Ordered{});
        break;
      case 5:
        if (!calm && random.Chance(0.1) && waits == 0) feed(Released{});
        break;
      case 6:
        if (!calm && random.Chance(0.05)) feed(Disposed{});
        break;
      case 7:
        if (watchdog.phase == Phase::kRevoking && revoked && falls_quiet && return_at == kNever)
          feed(Quiet{});
        break;
      default:
        break;
    }
    if (stopping_since != kNever && now - stopping_since > stopping_limit)
      broken = "W3: longer than the deadline";
    if (waiting_since != kNever && now - waiting_since > kLimits.operation) broken = "waits for ever";
    if (watchdog.phase == Phase::kForming && now - kStart > kLimits.forming) broken = "forms for ever";
  }
  return broken;
}

constexpr uint64_t kSeeds = 4000;

TEST(WatchdogSimulation, KeepsItsPromises) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) ASSERT_EQ(Simulate(seed, Decide), "") << "seed " << seed;
}

// Each of these is a mistake that somebody could make; the simulation must see every one.
TEST(WatchdogSimulation, SeesMistakes) {
  const std::vector<std::pair<std::string, DecideFunction>> mistakes = {
      {"never leaves",
       [](Watchdog* w, const Event& event, Time now) {
         Acts acts = Decide(w, event, now);
         if (std::erase(acts, Act::kLeave) > 0) w->phase = Phase::kAborting;
         return acts;
       }},
      {"a new deadline for the abort after a revoke",
       [](Watchdog* w, const Event& event, Time now) {
         const Phase before = w->phase;
         const Acts acts = Decide(w, event, now);
         if (before == Phase::kRevoking && w->phase == Phase::kAborting) w->due = now + w->limits.quiet;
         return acts;
       }},
      {"takes as long for one that works as for an idle one",
       [](Watchdog* w, const Event& event, Time now) {
         const Phase before = w->phase;
         const Acts acts = Decide(w, event, now);
         if (before == Phase::kRunning && w->phase == Phase::kAborting) w->due = now + w->limits.freeing;
         return acts;
       }},
      {"tells an order after a failure",
       [](Watchdog* w, const Event& event, Time now) {
         Acts acts = Decide(w, event, now);
         if (std::holds_alternative<Ordered>(event) && acts.empty()) acts.push_back(Act::kFail);
         return acts;
       }},
      {"aborts while the revoke is under way",
       [](Watchdog* w, const Event& event, Time now) {
         Acts acts = Decide(w, event, now);
         if (w->phase == Phase::kRevoking && std::holds_alternative<Disposed>(event))
           acts.push_back(Act::kAbort);
         return acts;
       }},
      {"parks what the library cannot shrink",
       [](Watchdog* w, const Event& event, Time now) {
         const Abilities real = w->abilities;
         if (std::holds_alternative<Released>(event)) w->abilities.shrink = true;
         const Acts acts = Decide(w, event, now);
         w->abilities = real;
         return acts;
       }},
      {"takes a failed abort for done",
       [](Watchdog* w, const Event& event, Time now) {
         if (w->phase == Phase::kAborting && std::holds_alternative<CallReturned>(event))
           return Decide(w, CallReturned{true}, now);
         return Decide(w, event, now);
       }},
      {"parks before it is quiet",
       [](Watchdog* w, const Event& event, Time now) {
         Acts acts = Decide(w, event, now);
         if (w->phase == Phase::kRevoking && !w->calling) Decide(w, Quiet{}, now);
         return acts;
       }},
      {"every event is progress",
       [](Watchdog* w, const Event& event, Time now) {
         const Acts acts = Decide(w, event, now);
         if (w->phase == Phase::kRunning && w->waits > 0) w->due = now + w->limits.operation;
         return acts;
       }},
      {"forgets the deadline of forming",
       [](Watchdog* w, const Event& event, Time now) {
         const Acts acts = Decide(w, event, now);
         if (w->phase == Phase::kForming) w->due = kNever;
         return acts;
       }},
  };
  for (const auto& [name, decide] : mistakes) {
    bool seen = false;
    for (uint64_t seed = 0; seed < kSeeds && !seen; ++seed) seen = !Simulate(seed, decide).empty();
    EXPECT_TRUE(seen) << name;
  }
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
