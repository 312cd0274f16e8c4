// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/network_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/unit/rendezvous/program_coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

class NetworkCheckTest : public ProgramCoordinatorTest {
 protected:
  NetworkCheckTest() { checks_peers_ = true; }

  int Warnings() const {
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [](const std::string& line) {
      return line.starts_with("no program starts until the workers reach each other: ");
    }));
  }
  std::vector<CheckStep> StepsOf(int n) {
    std::vector<CheckStep> steps;
    for (const CheckPeers& order : checks_[n]) steps.push_back(order.step);
    return steps;
  }
};

const std::vector<CheckStep> kWhole = {CheckStep::kListen, CheckStep::kConnect, CheckStep::kEnd};

TEST_F(NetworkCheckTest, ProgramsStartWhenAllMembersReachEachOther) {
  Make(3, 3, 3);
  const Time before = now_;
  Form({0, 1, 2});
  EXPECT_EQ(now_, before);
  for (const int n : {0, 1, 2}) EXPECT_EQ(StepsOf(n), kWhole) << n;
  std::vector<std::string> addresses;
  for (const Member& member : checks_[1][1].members) addresses.push_back(member.address);
  EXPECT_EQ(addresses, (std::vector<std::string>{"10.0.0.0:1000", "10.0.0.1:1000", "10.0.0.2:1000"}));
  EXPECT_EQ(report().unreachable, "");
}

TEST_F(NetworkCheckTest, OnlyTheFirstIncarnationIsChecked) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 137);
  End(1, 143);
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 4);
  EXPECT_EQ(StepsOf(0), kWhole);
}

TEST_F(NetworkCheckTest, AnUnreachablePeerIsNamedUntilItIsReached) {
  Make(3, 3, 3);
  blocked_ = {{0, 2}};
  for (const int n : {0, 1, 2}) Connect(n);
  const std::string text = "pod-0 cannot reach pod-2 (10.0.0.2:1000): timed out after 5 s";
  EXPECT_EQ(report().unreachable, text);
  EXPECT_EQ(report().phase, GangPhase::kForming);
  EXPECT_EQ(Warnings(), 1);
  const size_t orders = checks_[0].size();
  Pass(milliseconds(4900));
  EXPECT_EQ(checks_[0].size(), orders) << "the pause";
  Pass(seconds(60));
  EXPECT_GE(checks_[0].size(), orders + 24);
  EXPECT_EQ(report().unreachable, text);
  EXPECT_EQ(Warnings(), 1) << "the text is the same";
  EXPECT_EQ(starts_, 0);
  EXPECT_FALSE(report().incident.has_value());
  EXPECT_EQ(report().worker_failures, 0);

  blocked_ = {{0, 2}, {2, 1}};
  Pass(seconds(5));
  EXPECT_EQ(report().unreachable, text + "; pod-2 cannot reach pod-1 (10.0.0.1:1000): timed out after 5 s");
  EXPECT_EQ(Warnings(), 2);
  blocked_.clear();
  Pass(seconds(5));
  EXPECT_EQ(starts_, 3);
  EXPECT_EQ(report().unreachable, "");
}

TEST_F(NetworkCheckTest, WhatWasFoundIsReportedUntilTheNextCheckHasEnded) {
  Make(2, 2, 2);
  blocked_ = {{0, 1}};
  Connect(0);
  Connect(1);
  const std::string text = report().unreachable;
  EXPECT_NE(text, "");
  const size_t orders = checks_[1].size();
  blocked_.clear();
  withholding_ = {1};
  Pass(seconds(5));
  EXPECT_EQ(checks_[1].size(), orders + 1);
  EXPECT_EQ(report().unreachable, text);
  withholding_.clear();
  Answer(1, checks_[1].back());
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(report().unreachable, "");
}

TEST_F(NetworkCheckTest, TheTextIsBounded) {
  Make(3, 3, 3);
  blocked_ = {{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};
  for (const int n : {0, 1, 2}) Connect(n);
  const std::string& text = report().unreachable;
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 3) << text;
  EXPECT_TRUE(text.ends_with("; and 3 more")) << text;
}

TEST_F(NetworkCheckTest, AnAgentThatIsLostEndsTheCheck) {
  Make(2, 3, 3);
  withholding_ = {1};
  for (const int n : {0, 1, 2}) Connect(n);
  Disconnect(1);
  EXPECT_EQ(starts_, 0);
  Pass(seconds(14));
  EXPECT_EQ(starts_, 2) << "the others form the incarnation";
  EXPECT_EQ(checks_[0].back().number, checks_[2].back().number);
  EXPECT_GT(checks_[0].back().number, checks_[1].back().number);
}

TEST_F(NetworkCheckTest, AnAgentThatConnectsAgainIsCheckedAgain) {
  Make(2, 2, 2);
  withholding_ = {1};
  Connect(0);
  Connect(1);
  Disconnect(1);
  withholding_.clear();
  Connect(1);
  EXPECT_EQ(starts_, 2);
}

TEST_F(NetworkCheckTest, WhatWasFoundGoesWithTheMembers) {
  Make(2, 2, 2);
  blocked_ = {{0, 1}};
  Connect(0);
  Connect(1);
  EXPECT_NE(report().unreachable, "");
  Disconnect(1);
  EXPECT_EQ(report().unreachable, "");
  Connect(1);
  EXPECT_NE(report().unreachable, "");
  EXPECT_EQ(Warnings(), 1);
}

TEST_F(NetworkCheckTest, AJoinerIsCheckedWithTheOthersAndALateAnswerIsIgnored) {
  Make(2, 2, 3);
  withholding_ = {0};
  Connect(0);
  Connect(1);
  const CheckPeers old = checks_[0].back();
  Connect(2);
  const CheckPeers current = checks_[0].back();
  EXPECT_GT(current.number, old.number);
  Answer(0, old);
  EXPECT_EQ(checks_[2].back(), current) << "only answers to this order count";
  EXPECT_EQ(starts_, 0);
  withholding_.clear();
  Answer(0, current);
  EXPECT_EQ(starts_, 3);
  EXPECT_EQ(checks_[2][1].members.size(), 3u);
}

TEST_F(NetworkCheckTest, AgentsOfEarlierBuildsTakeNoPart) {
  Make(3, 3, 3);
  old_ = {1};
  Form({0, 1, 2});
  EXPECT_TRUE(checks_[1].empty());
  EXPECT_EQ(checks_[0][1].members.size(), 2u);
}

TEST_F(NetworkCheckTest, OneMemberHasNothingToCheck) {
  Make(1, 1, 1);
  Form({0});
  Make(2, 2, 2);
  old_ = {2};
  Form({1, 2});
  EXPECT_TRUE(checks_[0].empty() && checks_[1].empty());
}

TEST_F(NetworkCheckTest, ACoordinatorThatAdoptsDoesNotCheck) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(2, 2, 2, 2, true);
  Connect(0);
  Connect(1);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(1, 137);
  End(0, 143);
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 4);
  EXPECT_EQ(StepsOf(0), kWhole);
}

TEST_F(NetworkCheckTest, NumbersOfALaterCoordinatorAreAboveTheOthers) {
  Make(2, 2, 2);
  withholding_ = {0, 1};
  Connect(0);
  Connect(1);
  const CheckPeers first = checks_[0].back();
  Make(2, 2, 2, 2);
  Connect(0);
  Connect(1);
  EXPECT_GT(checks_[0].back().number, first.number);
}

TEST_F(NetworkCheckTest, AnAgentThatDoesNotFinishIsNamed) {
  Make(2, 2, 2);
  withholding_ = {1};
  Connect(0);
  Connect(1);
  Pass(milliseconds(14'900));
  EXPECT_EQ(report().unreachable, "");
  Pass(milliseconds(200));
  EXPECT_EQ(report().unreachable, "pod-1 has not finished the check of the network in 15 s");
  withholding_.clear();
  Pass(seconds(5));
  EXPECT_EQ(starts_, 2);
}

TEST_F(NetworkCheckTest, AnAgentThatCannotListenIsNamed) {
  Make(2, 2, 2);
  withholding_ = {1};
  Connect(0);
  Connect(1);
  const CheckPeers order = checks_[1].back();
  On(MessageFrom{ConnectionOf(1), PeersChecked{order.number, order.step, {}, "it has no free port"}});
  EXPECT_EQ(report().unreachable, "no worker can reach pod-1: it has no free port");
}

TEST_F(NetworkCheckTest, ASuspendedCoordinatorDoesNotBlameAgents) {
  Make(2, 2, 2);
  withholding_ = {1};
  Connect(0);
  Connect(1);
  now_ += seconds(20);
  On(TimePassed{});
  EXPECT_EQ(report().unreachable, "");
}

TEST_F(NetworkCheckTest, AnswersThatMakeNoSenseHaveNoEffect) {
  Make(2, 2, 2);
  withholding_ = {0, 1};
  Connect(0);
  On(MessageFrom{ConnectionOf(0), PeersChecked{0, CheckStep::kListen}});
  Connect(1);
  Answer(0, checks_[0].back());
  On(MessageFrom{ConnectionOf(1), PeersChecked{checks_[1].back().number, CheckStep::kEnd}});
  EXPECT_EQ(checks_[1].back().step, CheckStep::kListen);
  Answer(1, checks_[1].back());
  ASSERT_EQ(checks_[1].back().step, CheckStep::kConnect);
  const uint64_t number = checks_[1].back().number;
  withholding_.clear();
  On(MessageFrom{ConnectionOf(0), PeersChecked{number, CheckStep::kConnect, {{-1, "x"}, {2, "x"}}}});
  On(MessageFrom{ConnectionOf(1), PeersChecked{number, CheckStep::kConnect}});
  EXPECT_EQ(starts_, 2);
}

TEST_F(NetworkCheckTest, AStopDoesNotWaitForTheCheck) {
  Make(2, 2, 2);
  blocked_ = {{0, 1}};
  Connect(0);
  Connect(1);
  On(RequestStop{});
  EXPECT_EQ(report().phase, GangPhase::kStopped);
}

}  // namespace
}  // namespace ringmaster::rendezvous
