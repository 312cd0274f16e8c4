// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/rng.h"
#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

using Actions = std::vector<Action>;
const Limits kLimits = {seconds(10), seconds(20), milliseconds(500), seconds(2)};
const Capabilities kAll = {true, true};
const Capabilities kNone = {false, false};
const Time kStart = Time(seconds(1000));

class WatchdogTest : public ::testing::Test {
 protected:
  Watchdog Running(const Capabilities& capabilities) {
    Watchdog watchdog = StartWatchdog(kLimits, capabilities, kStart);
    EXPECT_EQ(Decide(&watchdog, Formed{}, kStart), Actions{});
    return watchdog;
  }
};

TEST_F(WatchdogTest, ACommunicatorThatLosesAMemberIsParked) {
  Watchdog watchdog = Running(kAll);
  EXPECT_EQ(Decide(&watchdog, WaitStarted{}, kStart), Actions{});
  EXPECT_EQ(Decide(&watchdog, Failed{kRemoteError, "reset by peer"}, kStart),
            (Actions{Action::kFail, Action::kRevoke}));
  EXPECT_EQ(watchdog.failure->code, Code::kUnavailable);
  EXPECT_EQ(Decide(&watchdog, Cancelled{}, kStart), Actions{}) << "already cancelled";
  EXPECT_EQ(Decide(&watchdog, Stopped{}, kStart), Actions{}) << "the call has not returned";
  EXPECT_EQ(watchdog.phase, Phase::kRevoking);
  EXPECT_EQ(Decide(&watchdog, CallReturned{true}, kStart), Actions{});
  EXPECT_EQ(Decide(&watchdog, Stopped{}, kStart), Actions{});
  EXPECT_EQ(watchdog.phase, Phase::kParked);
  EXPECT_TRUE(watchdog.revoked);
  EXPECT_EQ(watchdog.deadline, kNever);
  EXPECT_EQ(Decide(&watchdog, Disposed{}, kStart), Actions{Action::kAbort});
  EXPECT_EQ(Decide(&watchdog, CallReturned{true}, kStart), Actions{});
  EXPECT_EQ(watchdog.phase, Phase::kGone);
}

TEST_F(WatchdogTest, AnOlderLibraryIsAborted) {
  for (const Capabilities& capabilities : {kNone, Capabilities{true, false}, Capabilities{false, true}}) {
    Watchdog watchdog = Running(capabilities);
    EXPECT_EQ(Decide(&watchdog, Cancelled{}, kStart), (Actions{Action::kFail, Action::kAbort}));
    EXPECT_EQ(watchdog.failure->code, Code::kCancelled);
  }
}

TEST_F(WatchdogTest, ARevokeThatFailsBecomesAnAbortWithinTheSameDeadline) {
  Watchdog watchdog = Running(kAll);
  (void)Decide(&watchdog, Cancelled{}, kStart);
  const Time deadline = watchdog.deadline;
  EXPECT_EQ(Decide(&watchdog, CallReturned{false}, kStart + milliseconds(300)), Actions{Action::kAbort});
  EXPECT_EQ(watchdog.deadline, deadline);
  EXPECT_EQ(Decide(&watchdog, Tick{}, deadline - milliseconds(1)), Actions{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, deadline), Actions{Action::kExit});
  EXPECT_NE(ExitReason(watchdog).find("within 500 ms"), std::string::npos) << ExitReason(watchdog);
}

// Without work on the GPU there is time to join threads and free memory.
TEST_F(WatchdogTest, FreeingAnIdleCommunicatorMayTakeLonger) {
  Watchdog parked = Running(kAll);
  (void)Decide(&parked, Released{}, kStart);
  Watchdog forming = StartWatchdog(kLimits, kAll, kStart);
  Watchdog released = Running(kNone);
  const std::pair<Watchdog*, Event> all[] = {
      {&parked, Disposed{}}, {&forming, Cancelled{}}, {&released, Released{}}};
  for (const auto& [watchdog, event] : all) {
    (void)Decide(watchdog, event, kStart);
    EXPECT_EQ(watchdog->phase, Phase::kAborting);
    EXPECT_EQ(Decide(watchdog, Tick{}, kStart + milliseconds(1999)), Actions{});
    EXPECT_EQ(Decide(watchdog, Tick{}, kStart + seconds(2)), Actions{Action::kExit});
    EXPECT_TRUE(ExitReason(*watchdog).starts_with("NCCL did not free a communicator within 2 s"))
        << ExitReason(*watchdog);
  }
}

TEST_F(WatchdogTest, AFailedAbortExitsAtOnce) {
  Watchdog watchdog = Running(kNone);
  (void)Decide(&watchdog, Cancelled{}, kStart);
  EXPECT_EQ(Decide(&watchdog, CallReturned{false}, kStart), Actions{Action::kExit});
}

TEST_F(WatchdogTest, MissingRanksMeetTheDeadline) {
  Watchdog watchdog = StartWatchdog(kLimits, kAll, kStart);
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(10)), (Actions{Action::kFail, Action::kAbort}))
      << "nothing to keep before it has formed";
  EXPECT_EQ(watchdog.failure->code, Code::kDeadlineExceeded);
  EXPECT_NE(watchdog.failure->message.find("10 s"), std::string::npos);
}

TEST_F(WatchdogTest, AnOperationThatDoesNotEndMeetsTheDeadline) {
  Watchdog watchdog = Running(kNone);
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(100)), Actions{}) << "no wait is in progress";
  (void)Decide(&watchdog, WaitStarted{}, kStart + seconds(100));
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(119)), Actions{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(120)), (Actions{Action::kFail, Action::kAbort}));
  EXPECT_EQ(watchdog.failure->code, Code::kDeadlineExceeded);
}

TEST_F(WatchdogTest, ProgressOfOneWaitIsProgressForAll) {
  Watchdog watchdog = Running(kNone);
  (void)Decide(&watchdog, WaitStarted{}, kStart);
  (void)Decide(&watchdog, WaitStarted{}, kStart + seconds(5));
  (void)Decide(&watchdog, WaitEnded{}, kStart + seconds(19));
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(38)), Actions{});
  EXPECT_EQ(Decide(&watchdog, Tick{}, kStart + seconds(39)), (Actions{Action::kFail, Action::kAbort}));
}

TEST_F(WatchdogTest, ACleanReleaseParksIfTheLibraryCanShrink) {
  Watchdog kept = Running(Capabilities{false, true});
  EXPECT_EQ(Decide(&kept, Released{}, kStart), Actions{Action::kFail});
  EXPECT_EQ(kept.phase, Phase::kParked);
  EXPECT_FALSE(kept.revoked);
  Watchdog freed = Running(kNone);
  EXPECT_EQ(Decide(&freed, Released{}, kStart), (Actions{Action::kFail, Action::kAbort}));
}

TEST_F(WatchdogTest, AGpuThatFailsIsGone) {
  Watchdog watchdog = Running(kAll);
  (void)Decide(&watchdog, Failed{kUnhandledCudaError, "an illegal memory access"}, kStart);
  EXPECT_EQ(watchdog.failure->code, Code::kGone);
}

// ---- the simulation: a library with random behaviour, against the invariants of watchdog.h

using DecideFunction = std::function<Actions(Watchdog*, const Event&, Time)>;

// Returns the first violated invariant, or "".
std::string Simulate(uint64_t seed, const DecideFunction& decide) {
  SplitMix64 random(seed);
  const Capabilities capabilities = {random.Chance(0.6), random.Chance(0.7)};
  const bool revoke_works = random.Chance(0.7);
  const bool work_stops = random.Chance(0.8);
  const bool abort_works = random.Chance(0.9);
  const bool waits_end = random.Chance(0.7);
  const bool calm = random.Chance(0.3);  // only waits happen
  const bool calls_return = random.Chance(0.85);
  Watchdog watchdog = StartWatchdog(kLimits, capabilities, kStart);
  Time now = kStart;
  Time return_at = kNever;  // of the call in flight
  bool aborting = false;
  bool revoked = false;
  bool freed = false;
  int waits = 0;
  int failures = 0;
  int revokes = 0;
  Time stopping_since = kNever;
  Duration stopping_limit = kLimits.stopping;
  Time waiting_since = kNever;
  std::string broken;
  const auto feed = [&](const Event& event) {
    const Phase before = watchdog.phase;
    for (const Action action : decide(&watchdog, event, now)) {
      if (before == Phase::kGone || before == Phase::kExiting) broken = "W4: actions after the end";
      if (action == Action::kFail) {
        if (++failures > 1) broken = "W1: a second failure";
        if (!watchdog.failure) broken = "W1: a failure without an error";
        waits = 0;
        waiting_since = kNever;
      } else if (action == Action::kExit) {
        if (watchdog.phase != Phase::kExiting) broken = "W3: exits in another phase";
      } else {
        if (return_at != kNever) broken = "W2: two calls at a time";
        if (freed) broken = "W4: a call after it was freed";
        aborting = action == Action::kAbort;
        if (!aborting && ++revokes > 1) broken = "W5: revoked twice";
        if (!aborting && !capabilities.revoke) broken = "the library cannot revoke";
        if (stopping_since == kNever) {
          stopping_since = now;
          const bool idle = before == Phase::kForming || before == Phase::kParked ||
                            std::holds_alternative<Released>(event);
          stopping_limit = idle ? kLimits.freeing : kLimits.stopping;
        }
        const Duration takes = milliseconds(static_cast<int64_t>(random.Below(400)));
        return_at = calls_return ? now + takes : now + seconds(3600);
      }
    }
    const Phase after = watchdog.phase;
    // The GPU's work has ended; disposing of the communicator at once has its own deadline.
    if (std::holds_alternative<Stopped>(event) && after == Phase::kAborting) {
      stopping_since = now;
      stopping_limit = kLimits.freeing;
    }
    if (after == Phase::kParked) {
      if (!capabilities.shrink) broken = "W4: parked, and the library cannot shrink";
      if (return_at != kNever) broken = "W4: parked during a call";
      if (before == Phase::kRevoking && !(revoked && work_stops)) broken = "W4: parked while work runs";
    }
    if (after == Phase::kParked || after == Phase::kGone || after == Phase::kExiting) stopping_since = kNever;
    if (after == Phase::kGone && !freed) broken = "gone, but not freed";
  };
  for (int i = 0; i < 400 && broken.empty(); ++i) {
    now += milliseconds(static_cast<int64_t>(random.Below(random.Chance(0.02) ? 8000 : 60)));
    // The shell ticks at the deadline.
    const Time deadline = std::min({watchdog.deadline, return_at});
    if (deadline < now) now = deadline;
    if (return_at <= now) {
      return_at = kNever;
      const bool ok = aborting ? abort_works : revoke_works;
      if (aborting && ok) freed = true;
      if (!aborting && ok) revoked = true;
      feed(CallReturned{ok});
    }
    if (broken.empty() && watchdog.deadline <= now) feed(Tick{});
    switch (random.Below(10)) {
      case 0:
        if (watchdog.phase == Phase::kForming) feed(Formed{});
        break;
      case 1:
        if (watchdog.phase == Phase::kRunning && waits++ == 0) waiting_since = now;
        feed(WaitStarted{});
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
        if (!calm && random.Chance(0.1)) feed(Cancelled{});
        break;
      case 5:
        if (!calm && random.Chance(0.1) && waits == 0) feed(Released{});
        break;
      case 6:
        if (!calm && random.Chance(0.05)) feed(Disposed{});
        break;
      case 7:
        if (watchdog.phase == Phase::kRevoking && revoked && work_stops && return_at == kNever)
          feed(Stopped{});
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

TEST(WatchdogSimulation, KeepsItsInvariants) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) ASSERT_EQ(Simulate(seed, Decide), "") << "seed " << seed;
}

// Planted errors, each of which the simulation must detect.
TEST(WatchdogSimulation, DetectsPlantedErrors) {
  const std::vector<std::pair<std::string, DecideFunction>> planted_errors = {
      {"never exits",
       [](Watchdog* w, const Event& event, Time now) {
         Actions actions = Decide(w, event, now);
         if (std::erase(actions, Action::kExit) > 0) w->phase = Phase::kAborting;
         return actions;
       }},
      {"a new deadline for the abort after a revoke",
       [](Watchdog* w, const Event& event, Time now) {
         const Phase before = w->phase;
         const Actions actions = Decide(w, event, now);
         if (before == Phase::kRevoking && w->phase == Phase::kAborting)
           w->deadline = now + w->limits.stopping;
         return actions;
       }},
      {"gives a communicator with work as long as an idle one",
       [](Watchdog* w, const Event& event, Time now) {
         const Phase before = w->phase;
         const Actions actions = Decide(w, event, now);
         if (before == Phase::kRunning && w->phase == Phase::kAborting) w->deadline = now + w->limits.freeing;
         return actions;
       }},
      {"reports a cancellation after a failure",
       [](Watchdog* w, const Event& event, Time now) {
         Actions actions = Decide(w, event, now);
         if (std::holds_alternative<Cancelled>(event) && actions.empty()) actions.push_back(Action::kFail);
         return actions;
       }},
      {"aborts while the revoke is in flight",
       [](Watchdog* w, const Event& event, Time now) {
         Actions actions = Decide(w, event, now);
         if (w->phase == Phase::kRevoking && std::holds_alternative<Disposed>(event))
           actions.push_back(Action::kAbort);
         return actions;
       }},
      {"parks what the library cannot shrink",
       [](Watchdog* w, const Event& event, Time now) {
         const Capabilities real = w->capabilities;
         if (std::holds_alternative<Released>(event)) w->capabilities.shrink = true;
         const Actions actions = Decide(w, event, now);
         w->capabilities = real;
         return actions;
       }},
      {"treats a failed abort as done",
       [](Watchdog* w, const Event& event, Time now) {
         if (w->phase == Phase::kAborting && std::holds_alternative<CallReturned>(event))
           return Decide(w, CallReturned{true}, now);
         return Decide(w, event, now);
       }},
      {"parks before the work has ended",
       [](Watchdog* w, const Event& event, Time now) {
         Actions actions = Decide(w, event, now);
         if (w->phase == Phase::kRevoking && !w->call_in_flight) Decide(w, Stopped{}, now);
         return actions;
       }},
      {"every event is progress",
       [](Watchdog* w, const Event& event, Time now) {
         const Actions actions = Decide(w, event, now);
         if (w->phase == Phase::kRunning && w->waits > 0) w->deadline = now + w->limits.operation;
         return actions;
       }},
      {"forgets the deadline of forming",
       [](Watchdog* w, const Event& event, Time now) {
         const Actions actions = Decide(w, event, now);
         if (w->phase == Phase::kForming) w->deadline = kNever;
         return actions;
       }},
  };
  for (const auto& [name, decide] : planted_errors) {
    bool seen = false;
    for (uint64_t seed = 0; seed < kSeeds && !seen; ++seed) seen = !Simulate(seed, decide).empty();
    EXPECT_TRUE(seen) << name;
  }
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
