// SPDX-License-Identifier: Apache-2.0

// Gangs with several roles, such as parameter servers, some of which start again alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/program_coordinator.h"
#include "tests/unit/rendezvous/program_coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

// Workers 0 and 1, chief 10, parameter server 20, evaluator 30.
class RolesTest : public ProgramCoordinatorTest {
 protected:
  RolesTest() {
    ProgramPolicy& policy = options_.programs.emplace().policy;
    policy.workers.restart = ProgramRestart::kAlone;
    policy.roles = {{"chief", 1, ProgramRestart::kGang, true},
                    {"ps", 1, ProgramRestart::kAlone, false},
                    {"evaluator", 1, ProgramRestart::kNever, false}};
    policy.decider = ProgramPolicy::Decider::kRole;
    policy.decider_role = "chief";
    policy.max_restarts = 2;
    policy.backoff_initial = seconds(1);
    policy.ruled_exit_codes = {64};
    roles_ = {{10, "chief"}, {20, "ps"}, {30, "evaluator"}};
  }
  void FormAll() {
    Make(2, 2, 2);
    Form({0, 1, 10, 20, 30});
  }
};

TEST_F(RolesTest, AnIncarnationNeedsEveryRoleAndHasTheWorkersFirst) {
  Make(2, 2, 2);
  for (const int n : {30, 20, 1, 0}) Connect(n);
  Pass(seconds(60));
  EXPECT_EQ(starts_, 0) << "the chief is missing";
  Connect(10);
  ASSERT_EQ(last_start_.members.size(), 5u);
  std::vector<std::string> roles;
  for (const Member& member : last_start_.members) roles.push_back(member.role);
  EXPECT_EQ(roles, (std::vector<std::string>{"", "", "chief", "ps", "evaluator"}));
  EXPECT_EQ(report().live_pods.size(), 5u);
}

TEST_F(RolesTest, AnUnknownRoleIsRefused) {
  FormAll();
  roles_[40] = "launcher";
  Connect(40);
  EXPECT_EQ(report().live_pods.size(), 5u);
  Pass(seconds(100));
  EXPECT_EQ(starts_, 5);
}

TEST_F(RolesTest, ALostProgramStartsAgainAloneAfterItsBackOff) {
  FormAll();
  const Generation generation = report().generation;
  const std::string address = last_start_.members[3].address;
  End(20, 137);
  EXPECT_EQ(starts_, 5) << "the back-off";
  Pass(milliseconds(1100));
  EXPECT_TRUE(Runs(20));
  EXPECT_EQ(starts_, 6);
  EXPECT_EQ(last_start_.members[3].address, address) << "its peers know the old one";
  EXPECT_EQ(state_[20].life, 1);
  End(20, 137);
  Pass(milliseconds(1100));
  EXPECT_FALSE(Runs(20)) << "the back-off has doubled";
  Pass(seconds(1));
  EXPECT_TRUE(Runs(20));
  EXPECT_TRUE(Runs(0) && Runs(1) && Runs(10) && Runs(30));
  EXPECT_EQ(report().generation, generation);
  EXPECT_EQ(report().worker_failures, 2);
  EXPECT_FALSE(report().incident.has_value());
}

TEST_F(RolesTest, AProgramThatFailsTooOftenStopsTheGang) {
  FormAll();
  for (int i = 0; i < 2; ++i) {
    End(1, 1);
    Pass(seconds(5));
    ASSERT_TRUE(Runs(1));
  }
  End(1, 1);
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(RolesTest, AnExitCodeWithARuleIsOneOfTheGang) {
  FormAll();
  End(20, 64, "no such file");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.exit_code, 64);
}

TEST_F(RolesTest, TheGangIsSparedAnEvaluator) {
  FormAll();
  End(30, 1);
  Disconnect(30);
  On(PodEnded{"pod-30"});
  Pass(seconds(60));
  EXPECT_TRUE(Runs(0) && Runs(1) && Runs(10) && Runs(20));
  EXPECT_FALSE(report().incident.has_value());
}

TEST_F(RolesTest, TheChiefDecides) {
  FormAll();
  End(0, 0);
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(10, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
  EXPECT_EQ(exits_.size(), 5u);
}

TEST_F(RolesTest, AFailedChiefStopsTheGang) {
  FormAll();
  End(20, 137);
  End(10, 137);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
  for (const int n : {0, 1, 30}) End(n, 143);
  On(AllowRestart{report().incident->generation});
  for (const int n : {0, 1, 10, 20, 30}) EXPECT_TRUE(Runs(n)) << n;
  EXPECT_EQ(state_[20].life, 0);
}

// The last line of a chief of TensorFlow 2.21 that has lost a parameter server.
constexpr const char* kLostRemote =
    "This could happen if the remote target has been disconnected from the client.";

// A parameter server starts again without its variables, so the chief fails.
TEST_F(RolesTest, WhatALostProgramTakesWithItIsItsConsequence) {
  FormAll();
  End(20, 137);
  Pass(seconds(5));
  ASSERT_TRUE(Runs(20));
  End(10, 1, kLostRemote);
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  const FailureRecord& root = report().incident->root;
  EXPECT_EQ(root.pod, "pod-20");
  EXPECT_EQ(root.exit_code, 137);
  EXPECT_EQ(root.message, std::string("then pod-10 failed (its program ended, exit code 1): ") + kLostRemote);
}

TEST_F(RolesTest, ALostProgramExplainsNoFailureOfAnotherKind) {
  FormAll();
  End(20, 137);
  Pass(seconds(5));
  End(10, 1, "ValueError: the data is broken");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
}

TEST_F(RolesTest, ALostProgramExplainsNoFailureLongAfter) {
  FormAll();
  End(20, 137);
  Pass(seconds(62));
  End(10, 1, kLostRemote);
  Pass(seconds(1));
  EndStopped();
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
}

TEST_F(RolesTest, AnOrderToStartAgainThatIsLostIsRepeated) {
  FormAll();
  End(20, 137);
  mute_.insert(20);
  Pass(milliseconds(1100));
  EXPECT_FALSE(Runs(20));
  mute_.clear();
  Disconnect(20);
  Connect(20);
  EXPECT_TRUE(Runs(20));
  EXPECT_EQ(report().worker_failures, 1);
}

TEST_F(RolesTest, AProgramWaitsForItsAgentWithTheNextStart) {
  FormAll();
  End(20, 137);
  Disconnect(20);
  Pass(seconds(2));
  EXPECT_EQ(starts_, 5);
  Connect(20);
  EXPECT_TRUE(Runs(20));
  EXPECT_TRUE(Runs(10));
}

TEST_F(RolesTest, ANewCoordinatorAdoptsLives) {
  FormAll();
  End(20, 137);
  Pass(milliseconds(1100));
  ASSERT_EQ(state_[20].life, 1);
  Make(2, 2, 2, 2, true);
  for (const int n : {0, 1, 10, 20, 30}) Connect(n);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(starts_, 6);
  End(20, 137);
  Pass(milliseconds(1100));
  EXPECT_EQ(state_[20].life, 2);
}

TEST_F(RolesTest, TheFirstRankMayDecide) {
  options_.programs->policy.decider = ProgramPolicy::Decider::kFirst;
  FormAll();
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

}  // namespace
}  // namespace ringmaster::rendezvous
