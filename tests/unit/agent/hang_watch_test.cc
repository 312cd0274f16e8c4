// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/hang_watch.h"

#include <gtest/gtest.h>

namespace ringmaster::agent {
namespace {

constexpr Duration kTick = milliseconds(20);

HangWatch::Sample Stepped(Activity activity, uint64_t heartbeat) {
  return {.ready = true, .activity = activity, .heartbeat = heartbeat, .stepped = true};
}

// Feeds a watch every 20 ms of virtual time.
class Rig {
 public:
  explicit Rig(HangLimits limits) : watch_(limits) {}

  // Feeds `sample` for `span`; returns the report, if there is one.
  std::optional<HangWatch::HangReport> Hold(HangWatch::Sample sample, Duration span) {
    for (Duration passed{}; passed < span; passed += kTick) {
      now_ += kTick;
      if (auto report = watch_.Feed(now_, sample)) return report;
    }
    return std::nullopt;
  }
  // Computes with a heartbeat every `interval` for `beats` beats.
  std::optional<HangWatch::HangReport> Compute(Duration interval, int beats) {
    for (int i = 0; i < beats; ++i) {
      if (auto report = Hold(Stepped(Activity::kComputing, ++heartbeat_), interval)) return report;
    }
    return std::nullopt;
  }
  std::optional<HangWatch::HangReport> Silence(Activity activity, Duration span) {
    return Hold(Stepped(activity, heartbeat_), span);
  }
  void Jump(Duration span) { now_ += span; }
  const HangWatch& watch() const { return watch_; }

 private:
  HangWatch watch_;
  Time now_{};
  uint64_t heartbeat_ = 0;
};

TEST(HangWatch, ComputingWithoutHeartbeatIsAHang) {
  Rig rig({.step = seconds(2)});
  EXPECT_FALSE(rig.Compute(milliseconds(100), 50));
  EXPECT_FALSE(rig.Silence(Activity::kComputing, milliseconds(1800)));
  const auto report = rig.Silence(Activity::kComputing, milliseconds(400));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->evidence, "hang");
  EXPECT_NE(report->message.find("computing"), std::string::npos) << report->message;
}

TEST(HangWatch, WaitingIsNeverAHang) {
  Rig rig({.step = seconds(1)});
  EXPECT_FALSE(rig.Compute(milliseconds(100), 5));
  EXPECT_FALSE(rig.Silence(Activity::kWaiting, std::chrono::hours(2)));
}

TEST(HangWatch, AChangeOfActivityIsProgress) {
  Rig rig({.step = seconds(1)});
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(rig.Silence(Activity::kComputing, milliseconds(900)));
    EXPECT_FALSE(rig.Silence(Activity::kWaiting, milliseconds(40)));
  }
}

// When the leader and a worker die together, the others wait for that worker until a new leader is elected.
TEST(HangWatch, ExchangingOutlastsTheElectionOfALeader) {
  Rig rig({});
  EXPECT_FALSE(rig.Compute(milliseconds(40), 100));
  ASSERT_EQ(rig.watch().StepLimit(), HangWatch::kFloor);
  EXPECT_FALSE(rig.Silence(Activity::kExchanging, seconds(110)));
  const auto report = rig.Silence(Activity::kExchanging, seconds(20));
  ASSERT_TRUE(report);
  EXPECT_NE(report->message.find("exchanging"), std::string::npos);
  EXPECT_TRUE(report->in_collective) << "its trainer must live";
  EXPECT_FALSE(rig.Silence(Activity::kExchanging, seconds(110)));
  EXPECT_TRUE(rig.Silence(Activity::kExchanging, seconds(20))) << "reported again";
  Rig off({.step = Duration::zero()});
  EXPECT_FALSE(off.Silence(Activity::kExchanging, std::chrono::hours(2)));
  Rig slow({.step = seconds(300)});
  EXPECT_FALSE(slow.Silence(Activity::kExchanging, seconds(290)));
}

// A collective may wait for a peer that computes for minutes: the waiting trainer shows that it is alive.
TEST(HangWatch, AWaitForPeersThatShowsSignsOfLifeIsNotAHang) {
  Rig rig({});
  EXPECT_FALSE(rig.Compute(milliseconds(40), 100));
  uint64_t waits = 0;
  const auto wait = [&](Activity activity, Duration each) {
    return rig.Hold(
        {.ready = true, .activity = activity, .heartbeat = 100, .waits = ++waits, .stepped = true}, each);
  };
  for (int i = 0; i < 360; ++i) ASSERT_FALSE(wait(Activity::kExchanging, seconds(5))) << i;
  EXPECT_TRUE(wait(Activity::kExchanging, seconds(130)));
}

// One thread waits for peers while another one computes, and hangs.
TEST(HangWatch, AWaitForPeersDoesNotSpeakForAThreadThatComputes) {
  Rig rig({});
  EXPECT_FALSE(rig.Compute(milliseconds(40), 100));
  std::optional<HangWatch::HangReport> report;
  for (uint64_t waits = 0; waits < 12 && !report; ++waits)
    report = rig.Hold(
        {.ready = true, .activity = Activity::kComputing, .heartbeat = 100, .waits = waits, .stepped = true},
        seconds(1));
  EXPECT_TRUE(report);
}

// Storage on a network may stop for minutes, for all workers at once.
TEST(HangWatch, WaitingForDataHasASeparateLimit) {
  Rig rig({});
  EXPECT_FALSE(rig.Compute(milliseconds(40), 100));
  EXPECT_FALSE(rig.Silence(Activity::kReading, seconds(590)));
  const auto report = rig.Silence(Activity::kReading, seconds(20));
  ASSERT_TRUE(report);
  EXPECT_NE(report->message.find("training data"), std::string::npos) << report->message;
}

// The host enqueues a step in milliseconds; then the device works for as long as the step takes.
TEST(HangWatch, TheLimitOfTheDeviceIsLearnedFromItsWaits) {
  Rig rig({});
  EXPECT_FALSE(rig.Compute(milliseconds(40), 100));
  ASSERT_EQ(rig.watch().StepLimit(), HangWatch::kFloor);
  EXPECT_EQ(rig.watch().DeviceLimit(), HangWatch::kDeviceUnlearned);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(rig.Silence(Activity::kDevice, seconds(30)));
    EXPECT_FALSE(rig.Compute(milliseconds(40), 2));
  }
  EXPECT_GT(rig.watch().DeviceLimit(), seconds(590));
  EXPECT_FALSE(rig.Silence(Activity::kDevice, seconds(590)));
  const auto report = rig.Silence(Activity::kDevice, seconds(30));
  ASSERT_TRUE(report);
  EXPECT_NE(report->message.find("device"), std::string::npos) << report->message;

  Rig quick({});
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(quick.Silence(Activity::kDevice, milliseconds(100)));
    EXPECT_FALSE(quick.Compute(milliseconds(40), 2));
  }
  EXPECT_EQ(quick.watch().DeviceLimit(), HangWatch::kDeviceFloor);
  Rig off({.step = Duration::zero()});
  EXPECT_FALSE(off.Silence(Activity::kDevice, std::chrono::hours(2)));
}

TEST(HangWatch, SavingHasASeparateLimit) {
  Rig rig({.step = seconds(1)});
  EXPECT_FALSE(rig.Silence(Activity::kSaving, seconds(590)));
  EXPECT_TRUE(rig.Silence(Activity::kSaving, seconds(20)));
}

TEST(HangWatch, StartingHasALimitBeforeAndAfterAttaching) {
  for (const bool ready : {false, true}) {
    Rig rig({.startup = seconds(30)});
    EXPECT_FALSE(rig.Hold({ready, Activity::kStarting, 0, false}, seconds(29))) << ready;
    const auto report = rig.Hold({ready, Activity::kStarting, 0, false}, seconds(2));
    ASSERT_TRUE(report) << ready;
    EXPECT_NE(report->message.find("starting"), std::string::npos);
  }
}

TEST(HangWatch, ZeroMeansNoLimit) {
  Rig rig({.startup = Duration::zero(), .step = Duration::zero()});
  EXPECT_FALSE(rig.Hold({true, Activity::kStarting, 0, false}, std::chrono::hours(2)));
  EXPECT_FALSE(rig.Silence(Activity::kComputing, std::chrono::hours(2)));
}

TEST(HangWatch, LearnsFromTheMedianAndHasAFloor) {
  Rig quick({});
  EXPECT_FALSE(quick.Silence(Activity::kComputing, kTick));
  EXPECT_EQ(quick.watch().StepLimit(), HangWatch::kUnlearned);
  EXPECT_FALSE(quick.Compute(milliseconds(40), 100));
  EXPECT_EQ(quick.watch().StepLimit(), HangWatch::kFloor);

  Rig slow({});
  EXPECT_FALSE(slow.Compute(seconds(4), 41));
  EXPECT_EQ(slow.watch().StepLimit(), seconds(80));
  // A few outliers do not move it.
  EXPECT_FALSE(slow.Compute(seconds(40), 3));
  EXPECT_EQ(slow.watch().StepLimit(), seconds(80));
  EXPECT_FALSE(slow.Silence(Activity::kComputing, seconds(30)));
  EXPECT_TRUE(slow.Silence(Activity::kComputing, seconds(60)));
}

// The embedding takes milliseconds, the head of a large vocabulary minutes.
TEST(HangWatch, ASlowLayerAfterQuickOnesIsNotAHang) {
  Rig rig({.startup = seconds(1800)});
  uint64_t beats = 0;
  const auto layer = [&](Duration takes, bool stepped) {
    return rig.Hold(
        {.ready = true, .activity = Activity::kComputing, .heartbeat = ++beats, .stepped = stepped}, takes);
  };
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(layer(milliseconds(40), false));
  ASSERT_FALSE(layer(seconds(200), false)) << "in the first micro-batch";
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(layer(milliseconds(40), false));
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 40; ++i) ASSERT_FALSE(layer(milliseconds(40), true));
    ASSERT_FALSE(layer(seconds(200), true)) << step;
  }
  EXPECT_TRUE(layer(seconds(450), true)) << "a hang is still detected";
}

TEST(HangWatch, AStopIsDetectedInAnyActivity) {
  for (const Activity activity : {Activity::kStarting, Activity::kComputing, Activity::kExchanging,
                                  Activity::kWaiting, Activity::kSaving}) {
    Rig rig({});
    EXPECT_FALSE(rig.Silence(activity, seconds(1)));
    EXPECT_FALSE(rig.Hold({true, activity, 0, true}, milliseconds(120)));
    const auto report = rig.Hold({true, activity, 0, true}, milliseconds(100));
    ASSERT_TRUE(report);
    EXPECT_EQ(report->evidence, "stopped");
  }
}

TEST(HangWatch, ABriefStopIsTolerated) {
  Rig rig({});
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(rig.Hold({true, Activity::kWaiting, 0, true}, milliseconds(120)));
    EXPECT_FALSE(rig.Silence(Activity::kWaiting, milliseconds(20)));
  }
}

TEST(HangWatch, UnobservedTimeHardlyCounts) {
  Rig rig({.startup = seconds(5), .step = seconds(1)});
  EXPECT_FALSE(rig.Compute(milliseconds(100), 5));
  rig.Jump(std::chrono::hours(1));  // the agent was stopped, perhaps the trainer, too
  EXPECT_FALSE(rig.Silence(Activity::kComputing, milliseconds(700)));
  rig.Jump(std::chrono::hours(1));
  EXPECT_FALSE(rig.Hold({true, Activity::kComputing, 5, true}, milliseconds(60)));
  // A hang in observed time is still detected.
  EXPECT_TRUE(rig.Silence(Activity::kComputing, seconds(2)));
}

// A program of the user shows itself only where it calls the library.

HangWatch::Sample Computing(uint64_t heartbeat, bool stepped) {
  return {.ready = true, .activity = Activity::kComputing, .heartbeat = heartbeat, .stepped = stepped};
}

TEST(HangWatch, UntilItsFirstStepAProgramHasTheTimeOfItsStart) {
  for (const std::optional<Duration>& step :
       {std::optional<Duration>(), std::optional<Duration>(seconds(5))}) {
    Rig rig({.startup = seconds(900), .step = step, .program = true});
    EXPECT_FALSE(rig.Hold(Computing(1, false), seconds(890))) << "it compiles";
    EXPECT_FALSE(rig.Hold(Computing(2, false), seconds(890)));
    EXPECT_TRUE(rig.Hold(Computing(2, false), seconds(20)));
  }
}

// An evaluation has no heartbeats. What the program does meanwhile shows that it is not stuck.
class WorkTest : public testing::Test {
 protected:
  WorkTest() {
    while (beats_ < 100) EXPECT_FALSE(Hold(seconds(0), {}));
  }
  // Holds a sample for `span` while each second adds to the work; a span of 0: a heartbeat.
  std::optional<HangWatch::HangReport> Hold(Duration span, const ProcessWork& each_second) {
    if (span == Duration::zero()) ++beats_;
    for (Duration passed{}; passed <= span; passed += kTick) {
      now_ += kTick;
      if (ToMs(passed) % 1000 == 0) work_ += each_second;
      work_.blocked = each_second.blocked;
      HangWatch::Sample sample = Computing(beats_, true);
      if (watch_.WantsWork(now_)) sample.work = work_;
      if (auto report = watch_.Feed(now_, sample)) return report;
    }
    return std::nullopt;
  }
  HangWatch watch_{{.startup = seconds(1800), .program = true}};
  ProcessWork work_;
  Time now_{};
  uint64_t beats_ = 0;
};

TEST_F(WorkTest, AProgramThatComputesOrMovesDataIsNotHung) {
  for (const ProcessWork& work : {ProcessWork{.cpu = milliseconds(100)}, ProcessWork{.io_bytes = 1 << 20},
                                  ProcessWork{.blocked = true}}) {
    EXPECT_FALSE(Hold(seconds(1500), work));
    EXPECT_FALSE(Hold(seconds(0), {}));
  }
}

TEST_F(WorkTest, OneThatStopsDoingSoIs) {
  EXPECT_FALSE(Hold(seconds(290), {.cpu = seconds(1)}));
  EXPECT_FALSE(Hold(seconds(290), {.cpu = milliseconds(1), .io_bytes = 1000}));
  const auto report = Hold(seconds(20), {.cpu = milliseconds(1), .io_bytes = 1000});
  ASSERT_TRUE(report);
  EXPECT_NE(report->message.find("while computing (limit 300"), std::string::npos) << report->message;
}

TEST_F(WorkTest, WorkWithoutAnEndIsAHang) {
  EXPECT_FALSE(Hold(seconds(1790), {.cpu = seconds(1)}));
  const auto report = Hold(seconds(20), {.cpu = seconds(1)});
  ASSERT_TRUE(report);
  EXPECT_NE(report->message.find("though it uses CPU time"), std::string::npos) << report->message;
}

TEST_F(WorkTest, TheLimitOfWorkIsLearned) {
  EXPECT_FALSE(Hold(seconds(1500), {.cpu = seconds(1)}));
  EXPECT_FALSE(Hold(seconds(0), {}));
  EXPECT_FALSE(Hold(seconds(5000), {.cpu = seconds(1)}));
  EXPECT_TRUE(Hold(seconds(1500), {.cpu = seconds(1)}));
}

TEST(HangWatch, TheLimitOfAProgramIsTwiceItsLongestInterval) {
  Rig rig({.program = true});
  uint64_t beats = 0;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(rig.Hold(Computing(++beats, true), milliseconds(40)));
  EXPECT_EQ(rig.watch().StepLimit(), HangWatch::kProgramFloor);
  EXPECT_FALSE(rig.Hold(Computing(++beats, true), seconds(290)));
  EXPECT_FALSE(rig.Hold(Computing(++beats, true), seconds(1)));
  EXPECT_GE(rig.watch().StepLimit(), seconds(570));
  EXPECT_FALSE(rig.Hold(Computing(beats, true), seconds(560)));
  EXPECT_TRUE(rig.Hold(Computing(beats, true), seconds(60)));
}

TEST(HangWatch, TheLimitOfAProgramCanBeSetOrTurnedOff) {
  Rig set({.step = seconds(5), .program = true});
  EXPECT_FALSE(set.Hold(Computing(1, true), milliseconds(4900)));
  EXPECT_TRUE(set.Hold(Computing(1, true), milliseconds(300)));
  Rig off({.step = Duration::zero(), .program = true});
  EXPECT_FALSE(off.Hold(Computing(1, false), std::chrono::hours(2)));
}

// Its peers compile: a wait without a sign of life is a fault of the fabric all the same.
TEST(HangWatch, TheExchangeOfAProgramHasTheLimitOfATrainer) {
  Rig rig({.program = true});
  EXPECT_FALSE(rig.Silence(Activity::kExchanging, seconds(115)));
  EXPECT_TRUE(rig.Silence(Activity::kExchanging, seconds(10)));
}

TEST(HangWatch, AProfilerMayStopAProgramForAMoment) {
  Rig rig({.stopped = HangLimits::kProgramStopped, .program = true});
  HangWatch::Sample stopped = Computing(1, true);
  stopped.stopped = true;
  EXPECT_FALSE(rig.Hold(stopped, milliseconds(900)));
  EXPECT_TRUE(rig.Hold(stopped, milliseconds(300)));
}

}  // namespace
}  // namespace ringmaster::agent
