// SPDX-License-Identifier: Apache-2.0

// The launcher of MPI decides about its job together with the ranks that the agents have seen.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/rendezvous/program_coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

class LauncherTest : public ProgramCoordinatorTest {
 protected:
  LauncherTest() {
    options_.programs.emplace();
    options_.programs->policy.decider = ProgramPolicy::Decider::kFirst;
    options_.programs->policy.counts_ranks = true;
  }
  void Ran(int n, std::vector<RankCount> ranks) {
    state_[n].ranks = std::move(ranks);
    Report(n);
  }
};

TEST_F(LauncherTest, ItsSuccessCountsWhenEveryRankWasSeen) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive) << "the report about rank 1 is on its way";
  Ran(1, {{2, 1, 1}});
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

TEST_F(LauncherTest, ALauncherThatOverlooksALostRankFails) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  Pass(seconds(1));
  EXPECT_FALSE(report().incident.has_value());
  Pass(seconds(2));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.message,
            "the launcher ended with exit code 0, but rank 1 of 2 was not seen to end with exit code 0");
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
}

// The job is complete, but an agent that knows it cannot be heard when the launcher ends.
TEST_F(LauncherTest, ItsSuccessWaitsForAnAgentThatIsNotHeard) {
  for (const bool reset : {false, true}) {
    SCOPED_TRACE(reset);
    Make(2, 2, 2);
    Form({0, 1});
    Pass(seconds(1));
    mute_ = {1};
    Pass(milliseconds(1500));
    if (reset) Disconnect(1);
    Ran(0, {{2, 0, 1}});
    End(0, 0);
    Pass(seconds(10));
    EXPECT_EQ(report().phase, GangPhase::kActive) << "the whole job would run again";
    EXPECT_FALSE(report().last_failure.has_value());
    mute_.clear();
    if (reset) Connect(1);
    Ran(1, {{2, 1, 1}});
    EXPECT_EQ(report().phase, GangPhase::kFinished);
    state_.clear();
  }
}

TEST_F(LauncherTest, ItsSuccessDoesNotWaitForEverForAnAgent) {
  Make(2, 2, 2);
  Form({0, 1});
  Disconnect(1);
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  Pass(options_.programs->end_limit + seconds(4));
  EXPECT_EQ(report().last_failure->pod, "pod-1");
  EXPECT_FALSE(report().incident.has_value()) << "its agent is lost";
}

// Two workers are not heard when the launcher ends. One has reported its ranks before, and its pod goes.
TEST_F(LauncherTest, AWorkerWhoseRanksHaveSucceededIsNotMissed) {
  Make(3, 3, 3);
  Form({0, 1, 2});
  Ran(0, {{3, 0, 1}});
  Ran(1, {{3, 1, 1}});
  Disconnect(2);
  End(0, 0);
  On(PodEnded{"pod-1"});
  EXPECT_EQ(report().phase, GangPhase::kActive);
  state_[2].ranks = {{3, 2, 1}};
  Connect(2);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

// The pod of the launcher is lost after its success, while the report about another rank is on its way.
TEST_F(LauncherTest, WhatTheRanksOfTheLaunchersPodDidCountsWhenThatIsLost) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  On(PodEnded{Pod(0)});
  Ran(1, {{2, 1, 1}});
  EXPECT_FALSE(report().incident.has_value());
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

TEST_F(LauncherTest, AFailedRankIsTheCauseThoughTheLauncherEndsWithZero) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 0);
  End(1, 137, "rank 1 of 2 was killed by signal 9");
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(LauncherTest, ALauncherThatEndsFirstIsAConsequence) {
  Make(2, 2, 2);
  Form({0, 1});
  state_[0].evidence = "launcher";
  state_[0].phase = ProgramPhase::kEnded;
  state_[0].exit_code = 132;  // of Open MPI, and of a crash in machine code
  Report(0);
  End(1, 1, "rank 1 of 2 ended with exit code 1");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(LauncherTest, AllRanksInOneWorkerAreNotWhatTheJobAsksFor) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}, {2, 1, 1}});
  End(0, 0);
  Pass(seconds(3));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_NE(report().incident->root.message.find("no rank ran on pod-1"), std::string::npos);
}

TEST_F(LauncherTest, EveryRunOfMpiIsCounted) {
  Make(2, 2, 2);
  Form({0, 1});
  // A preparation with one rank, and two runs with two ranks, of which the second lost rank 1.
  Ran(0, {{1, 0, 1}, {2, 0, 2}});
  Ran(1, {{2, 1, 1}});
  End(0, 0);
  Pass(seconds(3));
  EXPECT_TRUE(report().incident.has_value());
}

// The launcher has a separate pod: agent 10.
class LauncherApartTest : public LauncherTest {
 protected:
  LauncherApartTest() {
    ProgramPolicy& policy = options_.programs->policy;
    policy.decider = ProgramPolicy::Decider::kRole;
    policy.decider_role = "launcher";
    policy.roles = {{"launcher"}};
    roles_ = {{10, "launcher"}};
    Make(2, 2, 2);
    Form({0, 1, 10});
  }
};

TEST_F(LauncherApartTest, ItsSuccessCountsWithoutARankInItsPod) {
  Ran(0, {{2, 0, 1}});
  Ran(1, {{2, 1, 1}});
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(10, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

TEST_F(LauncherApartTest, ItIsNamedWhenAWorkerHasSeenNoRank) {
  Ran(0, {{2, 0, 1}, {2, 1, 1}});
  End(10, 0);
  Pass(seconds(3));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
  EXPECT_NE(report().incident->root.message.find("no rank ran on pod-1"), std::string::npos);
}

TEST_F(LauncherApartTest, ItStartsAgainWithAllRanks) {
  End(10, 1, "no such program");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
}

TEST_F(LauncherTest, MembersGetTheKeysOfTheirIncarnation) {
  Make(2, 2, 2);
  state_[0].key = "a";
  state_[1].key = "b";
  Form({0, 1});
  EXPECT_EQ(last_start_.members[0].key, "a");
  EXPECT_EQ(last_start_.members[1].key, "b");
}

}  // namespace
}  // namespace ringmaster::rendezvous
