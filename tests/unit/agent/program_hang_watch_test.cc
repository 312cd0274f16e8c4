// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/program_hang_watch.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ringmaster::agent {
namespace {

using std::chrono::hours;

// A program in virtual time. Each function returns the report of a hang, if there is one.
class ProgramRig {
 public:
  explicit ProgramRig(ProgramHangLimits limits) : watch_(limits) {}

  // Lives for `span` and uses this share of a CPU.
  std::optional<std::string> Live(Duration span, double cpu_share) {
    for (Duration passed{}; passed < span; passed += watch_.interval()) {
      now_ += watch_.interval();
      sample_.cpu += std::chrono::duration_cast<Duration>(cpu_share * watch_.interval());
      if (auto hang = watch_.Feed(now_, sample_)) return hang;
    }
    return std::nullopt;
  }
  // Reports `count` steps, one after each `interval`.
  std::optional<std::string> Step(int count, Duration interval, double cpu_share = 1) {
    for (int i = 0; i < count; ++i) {
      ++sample_.reports;
      ++sample_.output;
      if (auto hang = Live(interval, cpu_share)) return hang;
    }
    return std::nullopt;
  }
  void Print() { ++sample_.output; }
  void Stop(bool stopped) { sample_.stopped = stopped; }
  void Finish() { sample_.finished = true; }
  void Suspend(Duration span) { now_ += span; }

 private:
  ProgramHangWatch watch_;
  Time now_{};
  ProgramHangWatch::Sample sample_;
};

TEST(ProgramHangWatch, SilenceWithoutCpuTimeIsAHang) {
  ProgramRig rig({});
  EXPECT_FALSE(rig.Live(seconds(60), 1));
  EXPECT_FALSE(rig.Live(seconds(1780), 0));
  const auto hang = rig.Live(seconds(60), 0);
  ASSERT_TRUE(hang);
  EXPECT_EQ(*hang, "no output and no CPU time for 30 min, launch.silenceSeconds = 1800");
}

TEST(ProgramHangWatch, RolesThatWaitByDesignMayBeSilent) {
  for (const char* role : {"ps", "evaluator"}) {
    ProgramRig rig(LimitsOfRole({.step = seconds(60)}, role));
    EXPECT_FALSE(rig.Live(hours(2), 0)) << role;
    EXPECT_FALSE(rig.Step(2, seconds(10))) << role;  // of its evaluations
    EXPECT_FALSE(rig.Live(hours(2), 0)) << role;
    rig.Stop(true);
    EXPECT_TRUE(rig.Live(seconds(20), 0)) << role;
  }
  EXPECT_FALSE(ProgramRig(LimitsOfRole({}, "launcher")).Live(hours(48), 0)) << "its ranks compute elsewhere";
  for (const char* role : {"", "chief"})
    EXPECT_TRUE(ProgramRig(LimitsOfRole({}, role)).Live(hours(1), 0)) << role;
}

TEST(ProgramHangWatch, ThreadsThatPollAreNoWork) {
  ProgramRig rig({});
  EXPECT_TRUE(rig.Live(seconds(1900), 0.01));
}

TEST(ProgramHangWatch, ASilentProgramThatComputesLives) {
  ProgramRig rig({});
  EXPECT_FALSE(rig.Live(hours(48), 0.05));
  EXPECT_FALSE(rig.Live(hours(48), 16));
}

// The decision waits for the end of a slot: CPU time at its begin does not show yet.
TEST(ProgramHangWatch, WorkThatBeginsAtTheLimitIsSeen) {
  for (int at = 1770; at < 1830; at += 2) {
    ProgramRig rig({});
    if (rig.Live(seconds(at), 0)) continue;  // too late
    EXPECT_FALSE(rig.Live(hours(1), 1)) << at;
  }
}

TEST(ProgramHangWatch, OutputIsASignOfLife) {
  ProgramRig rig({.silence = seconds(4)});
  for (int i = 0; i < 100; ++i) {
    rig.Print();
    ASSERT_FALSE(rig.Live(seconds(3), 0));
  }
  EXPECT_TRUE(rig.Live(seconds(6), 0));
}

TEST(ProgramHangWatch, ZeroTurnsTheLimitsOff) {
  ProgramRig rig({.step = Duration::zero(), .silence = Duration::zero()});
  EXPECT_FALSE(rig.Live(hours(100), 0));
  EXPECT_FALSE(rig.Step(10, seconds(1)));
  EXPECT_FALSE(rig.Live(hours(100), 0));
}

// A collective that waits for a lost peer may burn CPU time: only the steps show that it hangs.
TEST(ProgramHangWatch, AfterTheFirstReportAnExplicitLimitHoldsForEachStep) {
  ProgramRig rig({.step = seconds(30)});
  EXPECT_FALSE(rig.Live(hours(1), 1)) << "it has not reported anything: it may load for long";
  EXPECT_FALSE(rig.Step(50, seconds(25)));
  const auto hang = rig.Step(1, seconds(35));
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->find("health.stepSeconds = 30"), std::string::npos) << *hang;
}

TEST(ProgramHangWatch, TheLimitIsLearnedFromTheSteps) {
  ProgramRig fast({});
  EXPECT_FALSE(fast.Step(100, seconds(2)));
  EXPECT_FALSE(fast.Live(ProgramHangWatch::kFloor - seconds(10), 1)) << "a checkpoint may take minutes";
  const auto hang = fast.Live(seconds(20), 1);
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->find("learned"), std::string::npos) << *hang;

  ProgramRig slow({});
  EXPECT_FALSE(slow.Step(10, seconds(300)));
  EXPECT_FALSE(slow.Live(seconds(20 * 300 - 330), 1));
  EXPECT_TRUE(slow.Live(seconds(60), 1));
}

// Without a limit from the job, an evaluation that prints something may take as long as it likes.
TEST(ProgramHangWatch, OutputHoldsTheLearnedLimitBackAndNotAnExplicitOne) {
  ProgramRig learned({});
  ProgramRig given({.step = seconds(600)});
  for (ProgramRig* rig : {&learned, &given}) EXPECT_FALSE(rig->Step(100, seconds(2)));
  bool hung = false;
  for (int i = 0; i < 100; ++i) {
    learned.Print();
    given.Print();
    EXPECT_FALSE(learned.Live(seconds(60), 1));
    hung = hung || given.Live(seconds(60), 1).has_value();
  }
  EXPECT_TRUE(hung);
}

TEST(ProgramHangWatch, AfterTheLastStepOnlySilenceCounts) {
  ProgramRig rig({.step = seconds(10)});
  EXPECT_FALSE(rig.Step(10, seconds(1)));
  rig.Finish();
  EXPECT_FALSE(rig.Live(hours(2), 1));
  EXPECT_TRUE(rig.Live(hours(2), 0));
}

TEST(ProgramHangWatch, AStoppedProcessIsFoundAndShortStopsAreNot) {
  ProgramRig rig({});
  for (int i = 0; i < 20; ++i) {
    rig.Stop(true);
    ASSERT_FALSE(rig.Live(seconds(4), 0));
    rig.Stop(false);
    ASSERT_FALSE(rig.Live(seconds(2), 1));
  }
  rig.Stop(true);
  const auto hang = rig.Live(seconds(20), 0);
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->find("stopped"), std::string::npos) << *hang;
}

TEST(ProgramHangWatch, TimeWhileTheAgentIsSuspendedDoesNotCount) {
  ProgramRig rig({.step = seconds(60), .silence = seconds(120)});
  EXPECT_FALSE(rig.Step(3, seconds(1)));
  rig.Suspend(hours(1));
  EXPECT_FALSE(rig.Live(seconds(40), 0));
  rig.Stop(true);
  rig.Suspend(hours(1));
  EXPECT_FALSE(rig.Live(seconds(1), 0)) << "one gap counts as two intervals";
}

}  // namespace
}  // namespace ringmaster::agent
